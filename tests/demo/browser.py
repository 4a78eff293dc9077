"""Chromium without a screen, for the tests of the page."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any, Self
from urllib.parse import urlsplit

from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

PROGRAMS = (shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver"))
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip
BEYOND = """
return [...document.querySelectorAll('.gradio-container *')].filter(element =>
    element.getBoundingClientRect().right > window.innerWidth + 1 && !element.closest('.heat-map')
    && element.checkVisibility()).map(element => element.outerHTML.slice(0, 100))
"""
PATIENCE = 60  # seconds for what takes less than one on an idle machine


class Page:
    """The page in a browser of its own.

    Args:
        driver: of the browser.
        address: of the page.
        width: of the window, in pixels.
    """

    def __init__(self, driver: Chrome, address: str, width: int = 1280) -> None:
        self.driver = driver
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(address)
        self.wait(lambda: driver.find_elements(By.ID, "translate"))

    def wait(self, condition: Any) -> Any:
        return WebDriverWait(self.driver, PATIENCE, poll_frequency=0.1).until(lambda _: condition())

    def write(self, text: str) -> Self:
        box = self.driver.find_element(By.CSS_SELECTOR, "#source textarea")
        box.send_keys(Keys.CONTROL, "a")
        box.send_keys(text.replace("\n", Keys.ENTER))
        return self

    def press(self, selector: str) -> Self:
        self.wait(lambda: self.driver.find_elements(By.CSS_SELECTOR, selector))[0].click()
        return self

    def press_translate(self) -> Self:
        return self.press("#translate")

    def source(self) -> str:
        """Text that the visitor wrote."""
        return self.driver.find_element(By.CSS_SELECTOR, "#source textarea").get_property("value")

    def translations(self) -> list[str]:
        """Texts of the boxes, as soon as all hold something."""
        boxes = self.driver.find_elements(By.CSS_SELECTOR, ".translation textarea")
        return self.wait(lambda: all(found := [box.get_property("value") for box in boxes]) and found)

    def text(self, selector: str) -> list[str]:
        return [element.text for element in self.driver.find_elements(By.CSS_SELECTOR, selector)]

    def count(self, selector: str) -> int:
        return self.driver.execute_script("return document.querySelectorAll(arguments[0]).length", selector)

    def cut_off(self) -> list[str]:
        """Elements that reach beyond the right edge of the window, apart from what scrolls by itself."""
        return self.driver.execute_script(BEYOND)

    def hosts(self) -> set[str]:
        """Hosts to which the browser has sent requests since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return {urlsplit(url).hostname for url in sent if url.startswith(("http", "ws"))} - {None}


@contextmanager
def browser() -> Iterator[Chrome]:
    """A new Chromium that knows nothing of earlier ones."""
    program, driver = PROGRAMS
    with TemporaryDirectory() as profile:
        options = ChromeOptions()
        options.binary_location = program
        options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        chrome = Chrome(options=options, service=ChromeService(driver))
        try:
            yield chrome
        finally:
            chrome.quit()
