"""Translations of ATen's operators, one file a family; `translations` imports them all."""
