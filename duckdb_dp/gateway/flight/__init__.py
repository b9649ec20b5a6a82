"""Arrow Flight SQL: a gateway's answers for ADBC, JDBC and ODBC clients. Source: the Arrow project's specification of Flight SQL."""
