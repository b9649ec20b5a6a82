"""The gateway over HTTP: tools for agents (MCP) and pages for people."""
