// The rules of tic-tac-toe.

export type Mark = 'X' | 'O';
export type Board = readonly (Mark | undefined)[]; // nine squares, by row

export const emptyBoard: Board = Array.from({ length: 9 }, () => undefined);

const lines = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]] as const;

/** X begins. */
export function turn(b: Board): Mark {
  return b.filter((m) => m !== undefined).length % 2 === 0 ? 'X' : 'O';
}

/** Returns the three squares that win, and whose they are. */
export function winner(b: Board): { mark: Mark; line: readonly number[] } | undefined {
  for (const line of lines) {
    const mark = b[line[0]];
    if (mark !== undefined && line.every((i) => b[i] === mark)) return { mark, line };
  }
  return undefined;
}

export function isOver(b: Board): boolean {
  return winner(b) !== undefined || b.every((m) => m !== undefined);
}

/** Returns the board after a move; undefined if the move is against the rules. */
export function move(b: Board, at: unknown, mark: Mark): Board | undefined {
  if (typeof at !== 'number' || !Number.isInteger(at) || at < 0 || at > 8) return undefined;
  if (b[at] !== undefined || turn(b) !== mark || isOver(b)) return undefined;
  return b.map((m, i) => (i === at ? mark : m));
}
