import { render } from "preact";
import { Page } from "./shell/app";
import { keepTime } from "./shell/clock";
import { stayConnected } from "./shell/feed";
import { keepFleet } from "./shell/fleet";
import { followLinks } from "./shell/route";
import { applyTheme } from "./shell/theme";

const root = document.getElementById("page");
if (root !== null) {
  applyTheme();
  followLinks();
  keepTime();
  keepFleet();
  void stayConnected();
  render(<Page />, root);
}
