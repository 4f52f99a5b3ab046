// What has happened, for the log panel.

export interface Line {
  at: number; // ms since 1970
  text: string;
  isError: boolean;
}

const most = 300;

export class Log {
  readonly lines: Line[] = [];
  private readonly listeners: ((l: Line | undefined) => void)[] = [];

  add(text: string, isError = false): void {
    const line = { at: Date.now(), text: text.slice(0, 1000), isError }; // some of it is what others say
    this.lines.push(line);
    this.lines.splice(0, this.lines.length - most);
    for (const f of this.listeners) f(line);
  }

  clear(): void {
    this.lines.length = 0;
    for (const f of this.listeners) f(undefined);
  }

  /** Has f called for each new line, and with undefined when there is none any more. */
  onLine(f: (l: Line | undefined) => void): void {
    this.listeners.push(f);
  }
}
