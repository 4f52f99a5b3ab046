// The relay: what is known of it, other relays, and what has happened.

import { fingerprint } from '../../../sdk/js/src/index.js';
import type { App } from '../app.js';
import type { Line } from '../log.js';
import { button, coalesced, copyButton, h } from '../dom.js';
import { messageOf } from '../text.js';

export class RelayView {
  readonly title = 'Relay';
  readonly icon = 'relay';
  readonly element: HTMLElement;
  private readonly facts = h('dl', { class: 'facts' });
  private readonly servers = h('ul', { class: 'servers' });
  private readonly log = h('ol');
  private readonly scroll = h('div', { class: 'log mono', role: 'log', 'aria-label': 'Log', tabindex: 0 }, this.log);
  private readonly can = h('pre', { tabindex: 0, hidden: true, 'aria-label': 'What the relay can do' });

  constructor(private readonly app: App) {
    this.element = h('div', { class: 'columns' },
      h('h1', {}, 'Relay'),
      h('section', { class: 'card stack' },
        h('h2', {}, 'The relay in use'), this.facts,
        h('p', { class: 'actions' }, button('Ask what it can do', () => this.ask(), { class: 'quiet' }),
          button('Have it erase all it keeps for me', () => this.erase(), { class: 'quiet' })),
        this.can,
      ),
      h('section', { class: 'card stack' },
        h('h2', {}, 'Servers'), this.servers,
        h('p', { class: 'muted small' }, 'Relays tell one another’s addresses. This page may connect to its own host only: use another relay from the page that it serves.'),
      ),
      h('section', { class: 'card stack wide' },
        h('div', { class: 'talk-head' }, h('h2', { class: 'grow' }, 'Log'), button('Clear', () => this.app.log.clear(), { class: 'quiet' })),
        this.scroll,
      ),
    );
    app.log.lines.forEach((l) => this.line(l));
    app.log.onLine((l) => this.line(l));
    const redraw = coalesced(() => this.draw());
    app.watch({ link: redraw, servers: redraw });
    this.draw();
  }

  private draw(): void {
    const { app } = this;
    const key = app.relay?.key;
    const words = h('strong', { class: 'words' }, '…');
    if (key !== undefined) void fingerprint(key).then((w) => (words.textContent = w));
    const fact = (name: string, ...value: (string | Node)[]) => [h('dt', {}, name), h('dd', {}, ...value)];
    this.facts.replaceChildren(
      ...fact('Address', h('span', { class: 'mono' }, app.client.server.url)),
      ...fact('Connection', { connecting: 'being made', connected: 'up', offline: 'down; tried again by itself', ended: `ended: ${messageOf(app.why)}` }[app.link]),
      ...(key === undefined ? [] : [
        ...fact('Key', h('span', { class: 'copy-row' }, h('span', { class: 'mono' }, key), copyButton('key of the relay', () => key))),
        ...fact('In words', words, app.relay!.firstContact ? ' (seen for the first time: compare them)' : ''),
        ...fact('Messages that wait', app.relay!.durable ? 'survive a restart of the relay' : 'are lost when the relay restarts; this page then sends its own again'),
      ]),
    );
    const used = app.client.server.url;
    this.servers.replaceChildren(...app.client.servers.map((s) => h('li', {},
      h('span', { class: 'mono grow' }, s.url), s.url === used ? ' in use' : this.isOurs(s.url)
        ? button('Use', () => app.client.selectServer(s.url), { class: 'quiet', 'aria-label': `Use ${s.url}` })
        : ' another host')));
  }

  /** Says whether the policy of the page lets it connect there. */
  private isOurs(url: string): boolean {
    const u = new URL(url);
    return u.host === location.host && (u.protocol === 'wss:') === (location.protocol === 'https:');
  }

  private async ask(): Promise<void> {
    this.can.hidden = false;
    this.can.textContent = 'Waiting for the relay …';
    try {
      this.can.textContent = JSON.stringify(await this.app.client.capabilities(), null, 2);
    } catch (err) {
      this.can.textContent = messageOf(err);
    }
  }

  private async erase(): Promise<void> {
    if (!confirm('Messages that wait for you at this relay are lost then. Go on?')) return;
    if (this.app.link !== 'connected') this.app.log.add('the relay is asked to erase what it keeps for us once there is a connection');
    try {
      await this.app.client.erase();
      this.app.log.add('the relay has erased what it kept for us');
    } catch (err) {
      this.app.log.add(messageOf(err), true);
    }
  }

  private line(l: Line | undefined): void {
    if (l === undefined) return this.log.replaceChildren();
    const at = new Date(l.at).toLocaleTimeString();
    this.log.append(h('li', { class: l.isError && 'bad' }, h('time', { class: 'muted' }, at), ' ', l.text));
    while (this.log.children.length > 300) this.log.firstElementChild!.remove();
    this.scroll.scrollTop = this.scroll.scrollHeight;
  }
}
