"""Translations of control flow and regions, one file a family; `translations` imports them all."""
