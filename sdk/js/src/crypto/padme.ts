/**
 * Returns the smallest Padmé length that is n or more. A length of E bits keeps as
 * many leading bits as E takes to write, and is zero below: so a length tells at most
 * O(log log n) bits, and padding adds at most 12 %. (Nikitin et al., "Reducing
 * Metadata Leakage from Encrypted Files and Communication with PURBs", 2019.)
 */
export function padme(n: number): number {
  if (n < 2) return n;
  const exponent = 31 - Math.clz32(n);
  const kept = 32 - Math.clz32(exponent);
  const mask = 2 ** Math.max(exponent - kept, 0) - 1;
  return n + mask - ((n + mask) & mask);
}
