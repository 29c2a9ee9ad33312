"""Authentication (``authentication``) and permissions (``authorization``) of clients."""
