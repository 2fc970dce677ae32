"""How fast Spark reads topics."""
