"""Address settings for the scenarios of flow control and transactions."""

from __future__ import annotations

from typing import Final

#: Addresses that are small and full soon, one whose slow consumers are disconnected, one with dead letters.
ADDRESS_SETTINGS: Final = """
    <address-settings>
      <address-setting match="block.#">
        <max-size-bytes>20000</max-size-bytes><address-full-policy>BLOCK</address-full-policy>
      </address-setting>
      <address-setting match="fail.#">
        <max-size-bytes>20000</max-size-bytes><address-full-policy>FAIL</address-full-policy>
      </address-setting>
      <address-setting match="drop.#">
        <max-size-bytes>20000</max-size-bytes><address-full-policy>DROP</address-full-policy>
      </address-setting>
      <address-setting match="slow.#">
        <slow-consumer-threshold>10</slow-consumer-threshold>
        <slow-consumer-check-period>1</slow-consumer-check-period>
        <slow-consumer-policy>KILL</slow-consumer-policy>
      </address-setting>
      <address-setting match="dead.#">
        <max-delivery-attempts>2</max-delivery-attempts>
        <dead-letter-address>dead.letters</dead-letter-address>
      </address-setting>
    </address-settings>
    <addresses>
      <address name="dead.letters"><anycast><queue name="dead.letters"/></anycast></address>
    </addresses>
"""
