package org.apache.qpid.server.plugin;

/** Marks a service. The one of Broker-J comes with a code generator, which no package registry has. */
public @interface PluggableService
{
}
