package org.apache.qpid.tests.utils;

/** Name of the kind of broker that runs inside the tests of Broker-J; that broker is left out. */
final class EmbeddedBrokerPerClassAdminImpl
{
    static final String TYPE = "EMBEDDED_BROKER_PER_CLASS";

    private EmbeddedBrokerPerClassAdminImpl()
    {
    }
}
