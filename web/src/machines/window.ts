// Which of many rows of one height are worth drawing.
export interface Window {
  first: number;
  // not included
  end: number;
  // heights of the rows that are left out, in pixels
  before: number;
  after: number;
}

// top is the scrolled distance past the first row; it may be negative.
export function windowOf(count: number, rowHeight: number, top: number, height: number, spare = 10): Window {
  const inside = Math.max(0, Math.min(top, count * rowHeight - height));
  const first = Math.max(0, Math.floor(inside / rowHeight) - spare);
  const end = Math.min(count, Math.ceil((inside + height) / rowHeight) + spare);
  return { first, end, before: first * rowHeight, after: (count - end) * rowHeight };
}
