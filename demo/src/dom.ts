// Elements, made without any HTML text: what others write is never more than text.

type Child = Node | string | false | null | undefined;
type Value = string | number | boolean | undefined | ((e: never) => unknown);

/** Makes an element. A function is a listener of the event of that name; true is an attribute without a value. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K, props: Record<string, Value> = {}, ...children: Child[]
): HTMLElementTagNameMap[K] {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === 'function') e.addEventListener(name, value as EventListener);
    else if (value === true) e.setAttribute(name, '');
    else if (value !== undefined && value !== false) e.setAttribute(name, String(value));
  }
  e.append(...children.filter((c): c is Node | string => c !== false && c !== null && c !== undefined));
  return e;
}

/** Returns the element of the page that has this id. */
export function byID<T extends HTMLElement = HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

/** A button. */
export function button(label: string, click: () => unknown, props: Record<string, Value> = {}): HTMLButtonElement {
  return h('button', { type: 'button', click, ...props }, label);
}

/** Says something to a screen reader, and to nobody else. */
export function announce(text: string): void {
  byID('announcer').textContent = text;
}

/** A button that copies what it is given for. */
export function copyButton(what: string, text: () => string): HTMLButtonElement {
  const b = button('Copy', async () => {
    try {
      await navigator.clipboard.writeText(text());
      announce(`${what} copied`);
      b.textContent = 'Copied';
    } catch {
      b.textContent = 'Select it by hand';
    }
    setTimeout(() => (b.textContent = 'Copy'), 2000);
  }, { 'aria-label': `Copy ${what}`, class: 'quiet' });
  return b;
}

/** Returns what changed since it was called last, at most once a frame. */
export function coalesced(f: () => void): () => void {
  let due = false;
  return () => {
    if (due) return;
    due = true;
    queueMicrotask(() => {
      due = false;
      f();
    });
  };
}
