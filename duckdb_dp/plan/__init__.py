"""Planners: from a workload and a privacy cost to a plan. A planner never sees data."""
