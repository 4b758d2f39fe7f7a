"""Café Lumen: a small bot to evaluate before one has a bot, and stand-ins for the models it needs.

The offline models, the offline guest and the offline judge are scripts. They read what a real model would
read and act on it by fixed rules and seeded chance; nothing here is a language model.
"""
