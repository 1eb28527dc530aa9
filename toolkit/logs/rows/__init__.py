"""What every reader shares: identities, columns, many lines at once. Imports ``logs.files``."""
