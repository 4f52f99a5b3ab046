// Icons, drawn here so that they look the same whatever fonts there are. They decorate:
// what they stand for is said in words beside them.

/** Paths on a square of 24. */
const paths = {
  chats: 'M4 5h16v11H10l-4 4v-4H4z',
  rooms: 'M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.5 19c.5-4 2.5-5.5 5.5-5.5s5 1.5 5.5 5.5M16 11a2.5 2.5 0 1 0 0-5M16.5 13.5c2.8 0 4.5 1.5 5 5',
  games: 'M7 8h10a5 5 0 0 1 4.5 6.5c-.8 3-3.5 3-5 .5l-.7-1H8.2l-.7 1c-1.5 2.5-4.2 2.5-5-.5A5 5 0 0 1 7 8zM7 10v3M5.5 11.5h3M16.5 10.8v.1M18.2 12.5v.1',
  me: 'M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 20.5c.7-4.5 3.5-6 8-6s7.3 1.5 8 6',
  relay: 'M4 8h15m-4-4 4 4-4 4M20 16H5m4-4-4 4 4 4',
  clip: 'm20 11-8 8a5 5 0 0 1-7-7l8.5-8.5a3.3 3.3 0 0 1 4.7 4.7L10 16.5a1.6 1.6 0 0 1-2.3-2.3L15 7',
  file: 'M6 3h8l5 5v13H6zM14 3v5h5',
  rock: 'M5 16.5 4 11l4-5.5 6-1.5 5 3.5 1.5 6-3 5-6.5 1.5zM8 5.5l2 4.5 5-1 4-1.5M10 10l-1 5 5 4.5',
  paper: 'M6 3h12v18H6zM9 8h6M9 12h6M9 16h4',
  scissors: 'M6.5 9a2.7 2.7 0 1 0 0-5.4 2.7 2.7 0 0 0 0 5.4zM6.5 20.4a2.7 2.7 0 1 0 0-5.4 2.7 2.7 0 0 0 0 5.4zM8.7 7.8 20 18M8.7 16.2 20 6',
} as const;

export type Icon = keyof typeof paths;

export function icon(name: Icon): SVGElement {
  const e = svg('svg', { viewBox: '0 0 24 24', class: 'icon', 'aria-hidden': 'true' });
  e.append(svg('path', { d: paths[name] }));
  return e;
}

/** Makes an element of SVG. */
export function svg(tag: string, attributes: Record<string, string>): SVGElement {
  const e = document.createElementNS('http://www.w3.org/2000/svg', tag) as SVGElement;
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  return e;
}
