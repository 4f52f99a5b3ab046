// The page: which view is shown, and what stands around them.

import { App } from './app.js';
import { announce, button, byID, h } from './dom.js';
import { type Icon, icon } from './icons.js';
import { messageOf } from './text.js';
import { ChatsView } from './views/chats.js';
import { GamesView } from './views/games.js';
import { MeView } from './views/me.js';
import { RelayView } from './views/relay.js';
import { RoomsView } from './views/rooms.js';

/** A page of the application. */
export interface View {
  title: string;
  icon: Icon;
  element: HTMLElement;
  /** What follows its name in the address. */
  show?(rest: string): void;
}

const main = byID('main');

async function start(): Promise<void> {
  if (!('subtle' in crypto) || !('locks' in navigator)) {
    return fail('Browsers encrypt only in pages that come over https:// or from this machine. Open this one there.');
  }
  // The relay speaks brep beside us; behind a proxy that has a path, too.
  const url = new URL('../brep', location.href.split('#')[0]);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  await alone(async (taken) => {
    const app = await App.open(url.href);
    show(app);
    await taken;
    await app.close();
    main.replaceChildren(notice('Another tab has taken over.', 'Use this one', () => location.reload()));
  });
}

/**
 * Runs f in one tab at a time, as a key is logged in once. What f is given is fulfilled
 * when another tab takes over.
 */
async function alone(f: (taken: Promise<void>) => Promise<void>): Promise<void> {
  const name = 'sotto-demo';
  const run = async (steal: boolean): Promise<void> => {
    let lost!: () => void;
    const taken = new Promise<void>((resolve) => (lost = resolve));
    let running: Promise<void> | undefined;
    try {
      await navigator.locks.request(name, steal ? { steal } : { ifAvailable: true }, (lock) => {
        if (lock === null) {
          main.replaceChildren(notice('sotto is open in another tab.', 'Use it here', () => void run(true).catch(fail)));
          return;
        }
        return (running = f(taken));
      });
    } catch (err) {
      if ((err as Error).name !== 'AbortError') throw err;
      lost();
      await running;
    }
  };
  await run(false);
}

function show(app: App): void {
  const views: Record<string, View> = {
    chats: new ChatsView(app), rooms: new RoomsView(app), games: new GamesView(app), me: new MeView(app), relay: new RelayView(app),
  };
  const links = new Map<string, HTMLAnchorElement>();
  byID('pages').replaceChildren(
    ...Object.entries(views).map(([name, v]) => {
      const a = h('a', { href: `#/${name}` }, icon(v.icon), h('span', {}, v.title));
      links.set(name, a);
      return h('li', {}, a);
    }),
  );
  let first = true;
  const route = (): void => {
    const hash = location.hash.slice(1);
    if (hash === 'main') return main.focus();
    const [, name = '', rest = ''] = /^\/([a-z]+)\/?(.*)$/.exec(hash) ?? (hash.startsWith('add=') ? ['', 'chats', hash] : []);
    const view = views[name] ?? views.chats!;
    for (const [n, a] of links) {
      if (views[n] === view) a.setAttribute('aria-current', 'page');
      else a.removeAttribute('aria-current');
    }
    if (main.firstElementChild !== view.element) main.replaceChildren(view.element);
    document.title = `${view.title} · sotto`;
    view.show?.(rest);
    if (!first && !main.contains(document.activeElement)) main.focus({ preventScroll: true });
    first = false;
  };
  addEventListener('hashchange', route);
  route();

  const link = byID('link');
  const showLink = (): void => {
    link.dataset.link = app.link;
    const words = { connecting: 'connecting', connected: 'connected', offline: 'offline', ended: 'not connected' };
    link.replaceChildren(words[app.link]);
    if (app.link === 'ended') link.append(' ', mend(app));
  };
  const showUnread = (): void => {
    const n = app.book.list().reduce((sum, c) => sum + c.unread, 0);
    const a = links.get('chats')!;
    a.querySelector('.unread')?.remove();
    if (n > 0) a.append(h('span', { class: 'unread' }, String(n), h('span', { class: 'unseen' }, ' unread')));
  };
  app.watch({ link: showLink, talk: showUnread });
  showLink();
  showUnread();
}

/** What can be done about a client that has ended. */
function mend(app: App): HTMLElement {
  const code = (app.why as { code?: string } | undefined)?.code;
  if (code !== 'key-mismatch') return button('Connect again', () => app.connect());
  return button('Its key has changed', () => {
    const ask = `${messageOf(app.why)}.\n\nThis is so after a relay was set up anew, and also if somebody is in between. Trust the new key?`;
    if (confirm(ask)) void app.trustAnew().catch(fail);
  });
}

function notice(text: string, label: string, click: () => void): HTMLElement {
  return h('div', { class: 'card notice' }, h('h1', {}, text), button(label, click, { class: 'primary' }));
}

function fail(err: unknown): void {
  const text = messageOf(err);
  byID('link').replaceChildren('not started');
  main.replaceChildren(h('div', { class: 'card notice' }, h('h1', {}, 'This does not work here'), h('p', {}, text)));
  announce(text);
}

start().catch(fail);
