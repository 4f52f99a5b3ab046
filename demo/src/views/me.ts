// Who we are, for others to find us.

import encodeQR from 'qr';
import { fingerprint, formatPairing } from '../../../sdk/js/src/index.js';
import type { App } from '../app.js';
import { copyButton, h } from '../dom.js';
import { svg } from '../icons.js';

export class MeView {
  readonly title = 'Me';
  readonly icon = 'me';
  readonly element: HTMLElement;
  private readonly code = h('div', { class: 'qr' });
  private readonly link = h('output', { class: 'mono', id: 'pairing-link' });
  private readonly pairing = h('output', { class: 'mono', id: 'pairing' });

  constructor(private readonly app: App) {
    const words = h('strong', { class: 'words' }, '…');
    void fingerprint(app.key).then((w) => (words.textContent = w));
    this.element = h('div', { class: 'columns' },
      h('h1', {}, 'Me'),
      h('section', { class: 'card stack' },
        h('h2', {}, 'Have somebody write to you'),
        this.code,
        h('p', { class: 'muted small' }, 'Scan it, or send the link. It holds your key and the relay’s, and no secret.'),
        this.row('Link to this page', this.link, 'link'),
        this.row('Pairing string, for other programs', this.pairing, 'pairing string'),
      ),
      h('section', { class: 'card stack' },
        h('h2', {}, 'Your key'),
        this.row('Key', h('output', { class: 'mono', id: 'my-key' }, app.key), 'key'),
        h('p', {}, 'Six words that stand for it, to compare on the phone, say: ', words),
        h('p', { class: 'muted small' }, 'Its secret half is kept by this browser, where no script can read it. When you clear the browser’s data it is gone, and so are you.'),
      ),
    );
    app.watch({ link: () => void this.draw() });
    void this.draw();
  }

  private row(label: string, value: HTMLOutputElement, what: string): HTMLElement {
    value.setAttribute('aria-label', label);
    return h('div', { class: 'copy-row' }, h('span', { class: 'small muted' }, label), value, copyButton(what, () => value.textContent));
  }

  private async draw(): Promise<void> {
    const card = await this.app.client.cardSerial().catch(() => undefined); // the storage fails: what needs it says so
    const relay = this.app.relay?.key;
    const pairing = formatPairing({ key: this.app.key, url: this.app.url, ...(relay && { relay }), ...(card !== undefined && { card }) });
    if (this.pairing.textContent === pairing) return;
    const link = `${location.origin}${location.pathname}#add=${pairing}`;
    this.pairing.textContent = pairing;
    this.link.textContent = link;
    this.code.replaceChildren(qr(link));
  }
}

/** Draws a QR code of a text. */
function qr(text: string): SVGElement {
  const bits = encodeQR(text, 'raw', { ecc: 'low', border: 3 });
  const path = bits.map((row, y) => row.map((on, x) => (on ? `M${x} ${y}h1v1h-1z` : '')).join('')).join('');
  const e = svg('svg', { viewBox: `0 0 ${bits.length} ${bits.length}`, role: 'img', 'aria-label': 'QR code of the link', 'shape-rendering': 'crispEdges' });
  e.append(svg('path', { d: path }));
  return e;
}
