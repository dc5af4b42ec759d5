"""``gui``: the window, painted before anything heavy is imported.

What takes long waits for the first paint: the server's libraries and the load of the model start then, each on a thread
of its own. Closing the window, Ctrl+Q, SIGINT and SIGTERM all end in :meth:`_Face.quit`.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from PySide6.QtCore import QEvent, QObject, QSocketNotifier, Qt, QTimer, Signal, Slot
from PySide6.QtGui import QFileOpenEvent
from PySide6.QtWidgets import QApplication, QMessageBox

from app import about, crash, first_run
from app.demo.facts import demo_facts
from app.instance import Holder, ask_to_show, current_holder
from app.network import Network
from app.options import Options
from app.paths import Paths
from app.quitter import Quitter
from app.settings_store import SettingsStore
from app.startup import Program, choose_model, opened, start_engine
from app.token_store import TokenStore
from engine.actions.standing import PutBack
from engine.config import EngineSettings
from engine.errors import DataDirectoryInUse, MillmError
from engine.events import Event, ModelLoadError, ModelsChanged, ServerStateChanged
from engine.library.records import ModelRecord
from server.thread import ServerThread
from ui.bridge import Bridge
from ui.context.page_context import import_pages
from ui.context.services import AppServices, Progress
from ui.kit import theme
from ui.program.folder_dialog import FolderDialog
from ui.window.main_window import MainWindow
from ui.window.tray import Tray

WITHOUT_A_SCREEN = ("offscreen", "minimal")
SCHEMES = {"system": None, "light": Qt.ColorScheme.Light, "dark": Qt.ColorScheme.Dark}
BRIDGE_SECONDS = 0.3
START_SECONDS = 5.0
PULSE_MS = 200
SWITCH_S = 0.001
"""After how long a thread that only computes hands the interpreter to one that waits for it; Python's own is 5 ms. The
window's thread lets go of it in nearly every call to Qt, so what it handles waits that long again and again."""
REPORT_KEY = "crash_report_seen"
"""In the library's state: the name of the crash report that was offered last."""


def run(options: Options) -> int:
    """Open the window and stay until it is closed; the exit status."""
    sys.setswitchinterval(SWITCH_S)
    app = _application()
    try:
        if not _folder_is_known(app, options):
            return 0
        with opened(options) as program:
            face = _Face(app, program)
            status = face.run()
            return face.quitter.leave(status)
    except DataDirectoryInUse as error:
        holder = _window_shown(Paths.find(options.data_dir), options.files)
        if holder is not None:
            print(f"{about.NAME} is open already (pid {holder.pid}); its window was brought to the front.", flush=True)
            return 0
        return _refused(app, error)
    except MillmError as error:
        return _refused(app, error)


def _folder_is_known(app: QApplication, options: Options) -> bool:
    """Ask for the data folder at the very first start; False when the person would rather not start."""
    asked = first_run.question(options)
    if asked is None or app.platformName() in WITHOUT_A_SCREEN:
        return True

    def settle(folder: Path) -> str | None:
        try:
            first_run.settle(folder)
        except MillmError as error:
            return error.message
        return None

    dialog = FolderDialog(
        asked.default, settle, inside=first_run.own_folder_in, free=first_run.free_bytes, missing=asked.missing
    )
    # Python runs a signal's handler only when the interpreter has control, so that it gets it now and then.
    pulse = QTimer(dialog)
    pulse.timeout.connect(lambda: None)
    pulse.start(PULSE_MS)
    return dialog.exec() == FolderDialog.DialogCode.Accepted


def _window_shown(paths: Paths, files: tuple[Path, ...]) -> Holder | None:
    """Have the first process show its window; None when it has none. One that is just starting is waited for."""
    deadline = time.monotonic() + START_SECONDS
    while (holder := current_holder(paths)) is not None and holder.role == "gui":
        if holder.raise_port is not None:
            return holder if ask_to_show(holder, files) else None
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return None


def _application() -> QApplication:
    theme.set_high_dpi_policy()
    app = QApplication(sys.argv[:1])
    app.setApplicationName(about.NAME)
    app.setApplicationVersion(about.VERSION)
    app.setDesktopFileName("millm-desktop")
    # The loop goes on after the window is gone, until everything behind it has ended.
    app.setQuitOnLastWindowClosed(False)
    theme.install(app)
    return app


def _refused(app: QApplication, error: MillmError) -> int:
    """A start that came to nothing: on standard error, and in a box for who clicked an icon."""
    _complain(error.one_line())
    if app.platformName() not in WITHOUT_A_SCREEN:
        box = QMessageBox(QMessageBox.Icon.Critical, about.NAME, error.one_line())
        # Names of files and of people's models are in it.
        box.setTextFormat(Qt.TextFormat.PlainText)
        box.exec()
    return 1


def _complain(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class _Signals(QObject):
    """SIGINT and SIGTERM inside Qt's loop. Python runs a handler only when the interpreter has control; a byte written
    to a socket by the interpreter's own C handler wakes the loop and gives it that.
    """

    arrived = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._inner, outer = socket.socketpair()
        self._outer = outer
        for end in (self._inner, outer):
            end.setblocking(False)
        signal.set_wakeup_fd(outer.fileno(), warn_on_full_buffer=False)
        for name in ("SIGINT", "SIGTERM", "SIGBREAK"):
            if (number := getattr(signal, name, None)) is not None:
                signal.signal(number, self._ignore)
        self._notifier = QSocketNotifier(self._inner.fileno(), QSocketNotifier.Type.Read)
        self._notifier.activated.connect(self._on_byte)

    def close(self) -> None:
        """Let go of the sockets. The signals stay without effect: the program is ending."""
        signal.set_wakeup_fd(-1)
        self._notifier.setEnabled(False)
        self._inner.close()
        self._outer.close()

    @Slot()
    def _on_byte(self) -> None:
        self._inner.recv(64)
        self.arrived.emit()

    @staticmethod
    def _ignore(_number: int, _frame: FrameType | None) -> None:
        return


class _FirstPaint(QObject):
    """Tells when a widget was painted for the first time."""

    happened = Signal()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Qt's name for it. Lets everything through."""
        if event.type() == QEvent.Type.Paint:
            watched.removeEventFilter(self)
            # After this event has been handled, so after the paint.
            QTimer.singleShot(0, self.happened.emit)
        return False


class _OpenedFiles(QObject):
    """Documents the desktop hands to a program that runs already; macOS opens them this way and no other."""

    arrived = Signal(object)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Qt's name for it. Lets everything else through."""
        if event.type() == QEvent.Type.FileOpen and isinstance(event, QFileOpenEvent) and event.file():
            self.arrived.emit((Path(event.file()),))
            return True
        return False


class _Face(QObject):
    """Wires the window to the program: start order, errors, and the way out."""

    _shown = Signal(object)
    _ended = Signal()
    _close_bridge = Signal()

    def __init__(self, app: QApplication, program: Program) -> None:
        super().__init__()
        self._app = app
        self._program = program
        # The engine's own copy: what the settings page changes at once is set on it.
        live = EngineSettings(**{name: getattr(program.settings, name) for name in EngineSettings.model_fields})
        self._engine = start_engine(program, live)
        self._settings = SettingsStore(
            program.settings,
            live,
            file=program.paths.settings_file,
            command_line={"HOST": program.options.host, "PORT": program.options.port},
        )
        self._network = Network()
        self._token = TokenStore(program.paths.data_dir, changed=self._use_network)
        self._server = ServerThread(self._engine, program.settings, insecure=program.options.insecure)
        self._bridge = Bridge(self._engine.events)
        self._bridge_closed = threading.Event()
        self._quitting = False
        self.quitter = Quitter(
            server=self._server,
            engine=self._engine,
            library=program.library,
            instance=program.instance,
            window=self._end_bridge,
        )
        queued = Qt.ConnectionType.QueuedConnection
        self._ended.connect(self._app.quit, queued)
        self._close_bridge.connect(self._on_close_bridge, queued)
        self._dress()
        self._window = MainWindow(self._services(), self._bridge)
        self._tray = Tray.where_there_is_one(self._window, self._services_given)
        self._settings.subscribe(self._on_settings)
        self._shown.connect(self._show, queued)
        self._engine.events.subscribe(self._on_event, ServerStateChanged, ModelLoadError)
        program.crashes.tell(self._on_crash)

    def run(self) -> int:
        """Show the window and run until everything has ended."""
        signals = _Signals()
        signals.arrived.connect(self._window.leave)
        paint = _FirstPaint()
        paint.happened.connect(self._begin)
        self._window.installEventFilter(paint)
        opened = _OpenedFiles()
        opened.arrived.connect(self._show)
        if sys.platform == "darwin":
            # Elsewhere documents come on the command line, and a filter sees every event of the program.
            self._app.installEventFilter(opened)
        self._program.instance.listen(self._shown.emit)
        self._window.show()
        status = self._app.exec()
        # Where the loop was ended by something else than the window (a session that logs out), nothing has ended yet.
        self.quitter.quit(status)
        signals.close()
        return status

    def quit(self) -> None:
        """End everything behind the window on another thread, then the loop. Called once, on the GUI thread."""
        if self._quitting:
            return
        self._quitting = True
        if self._tray is not None:
            self._tray.remove()

        def work() -> None:
            self.quitter.quit()
            self._ended.emit()

        threading.Thread(target=work, name="quit", daemon=True).start()

    @Slot(object)
    def _show(self, files: tuple[Path, ...]) -> None:
        """Come to the front, for a second start that may have brought documents."""
        self._window.raise_window()
        if files:
            self._window.open_documents(files)

    # --- start --------------------------------------------------------------------------------------------------------

    @Slot()
    def _begin(self) -> None:
        """What had to wait for the first paint."""
        self._program.logs.speak()
        # The keyring may ask the desktop, which takes a moment.
        self._in_background("network", self._use_network)
        self._server.start()
        self._in_background("pages", import_pages)
        try:
            restore = self._program.settings.RESTORE_LAST
            choice = choose_model(self._program, self._engine, restore=restore)
            if choice is not None:
                self._load_first(choice.record, restore=restore)
        except MillmError as error:
            _complain(error.one_line())
            self._window.say_error(error)
        if self._program.options.files:
            self._window.open_documents(self._program.options.files)
        self._offer_report()
        self._window.tour.offer()

    def _load_first(self, record: ModelRecord, *, restore: bool) -> None:
        """Load the model to begin with and, where that is wanted, put what was attached to it back."""
        window, standing = self._window, self._engine.standing
        loading = self._engine.loader.load(record.id)
        if not restore:
            return
        window.offers_standing = False

        def ended(outcome: PutBack | Exception) -> None:
            window.offers_standing = True
            if isinstance(outcome, PutBack):
                window.say_put_back(outcome)

        def loaded(_model: object) -> None:
            self._bridge.run_in_background(standing.put_back, ended, ended, owner=self)

        # What a load ends with the window says of every load.
        self._bridge.when_done(loading, loaded, ended, owner=self)

    def _offer_report(self) -> None:
        """A crash report nobody was shown yet: each is offered once."""
        state, folder = self._program.library.state, self._program.paths.logs

        def look() -> Path | None:
            seen = state.get(REPORT_KEY)
            report = crash.newest_since(folder, seen if isinstance(seen, str) else "")
            if report is not None:
                state.set(REPORT_KEY, report.name)
            return report

        def told(report: Path | None) -> None:
            if report is not None:
                self._window.offer_report(report)

        self._bridge.run_in_background(look, told, self._window.say_error, owner=self)

    def _services(self) -> AppServices:
        self._services_given = AppServices(
            engine=self._engine,
            server=self._server,
            settings=self._settings,
            token=self._token,
            data_dir=self._program.paths.data_dir,
            quit=self.quit,
            install_demo=self._install_demo,
            versions={about.NAME: about.VERSION},
            configured_port=self._program.settings.PORT,
            demo=demo_facts(),
        )
        return self._services_given

    def _install_demo(self, progress: Progress) -> None:
        from app.demo.content import install_content
        from app.demo.flights import FLIGHTS
        from app.demo.install import install

        def both(say: Progress) -> None:
            # While the wheel comes, the libraries that the load needs come in, too.
            self._in_background("libraries", self._engine.loader.import_ahead)
            install(self._program.paths, self._program.library, lambda done, stage: say(0.94 * done, stage))
            install_content(self._engine, lambda done, stage: say(94 + 0.06 * done, stage))
            self._engine.events.publish(ModelsChanged())

        FLIGHTS.run("demo", both, progress)

    @staticmethod
    def _in_background(name: str, task: Callable[[], None]) -> None:
        threading.Thread(target=task, name=name, daemon=True).start()

    # --- what happens meanwhile, on any thread ------------------------------------------------------------------------

    def _on_settings(self, changed: frozenset[str]) -> None:
        """Put in force what the settings page has changed, as far as it is not the engine's."""
        self._server.configure(self._settings.current)
        if "LOG_LEVEL" in changed:
            self._program.logs.set_level(self._settings.current.LOG_LEVEL)
        if "PROXY" in changed:
            self._use_network()
        if "THEME" in changed:
            self._bridge.post(self._dress, owner=self)

    def _use_network(self) -> None:
        self._network.use(self._settings.current.PROXY, self._token.token())

    def _dress(self) -> None:
        """The colours that were chosen; on the GUI thread."""
        theme.current().force(SCHEMES[self._settings.current.THEME])

    def _on_event(self, event: Event) -> None:
        match event:
            case ServerStateChanged(state="running", address=str(address)):
                self._program.instance.set_port(int(address.split(":")[-1].split("/")[0]))
            case ServerStateChanged(state="stopped"):
                self._program.instance.set_port(None)
            case ServerStateChanged(state="error", error=str(error)):
                self._program.instance.set_port(None)
                _complain(error)
            case ModelLoadError() if event.code != "load_cancelled":
                _complain(f"Could not load {event.model_name!r}: {event.message}")

    def _on_crash(self, report: object) -> None:
        words = f"Something failed inside the program. A report is in {report}"
        self._bridge.post(lambda: self._window.say(words, lasting=True), owner=self._window)

    # --- the end ------------------------------------------------------------------------------------------------------

    def _end_bridge(self) -> None:
        """On the quitting thread: the bridge is closed by the GUI thread, before the library is."""
        if threading.current_thread() is threading.main_thread():
            self._on_close_bridge()
            return
        self._close_bridge.emit()
        self._bridge_closed.wait(2 * BRIDGE_SECONDS)

    @Slot()
    def _on_close_bridge(self) -> None:
        self._bridge.shutdown(BRIDGE_SECONDS)
        self._bridge_closed.set()
