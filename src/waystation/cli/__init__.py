"""The command ``waystation``: one file per noun, imported when the noun is used."""
