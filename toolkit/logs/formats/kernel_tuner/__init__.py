"""Documents of Kernel Tuner and of the T4 schema. Imports ``logs.rows``."""
