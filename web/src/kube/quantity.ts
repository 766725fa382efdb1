// Kubernetes quantities, as far as amounts of memory, storage and CPU use them.
const factors: Record<string, number> = {
  '': 1, n: 1e-9, u: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

// undefined means that the text is no quantity.
export function parseQuantity(text: string | undefined): number | undefined {
  const found = /^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([A-Za-z]*)$/.exec(text ?? '');
  if (!found) return undefined;
  const factor = factors[found[2] ?? ''];
  const number = Number(found[1]);
  return factor === undefined || Number.isNaN(number) ? undefined : number * factor;
}

export function bytes(amount: number): string {
  for (const [unit, size] of [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10]] as const) {
    if (amount >= size) return `${String(Math.round((amount / size) * 10) / 10)} ${unit}`;
  }
  return `${String(amount)} B`;
}

export function memoryText(text: string | undefined): string {
  const amount = parseQuantity(text);
  return amount === undefined ? (text ?? '') : bytes(amount);
}
