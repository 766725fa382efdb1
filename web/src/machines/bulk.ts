// The same action on many machines, a few at a time.
import { act } from '../machine/act';
import { obstacle, type ActionName } from '../machine/actions';
import { asFailure, type Failure } from '../kube/failure';
import type { Row } from './rows';

export const bulkActions = ['start', 'stop', 'restart'] as const satisfies readonly ActionName[];
export type BulkAction = (typeof bulkActions)[number];

export function possible(action: BulkAction, rows: readonly Row[]): Row[] {
  return rows.filter((row) => obstacle(action, row) === undefined);
}

export interface Refusal {
  row: Row;
  failure: Failure;
}

export async function inBulk(
  rows: readonly Row[],
  run: (row: Row) => Promise<void>,
  atOnce = 5,
): Promise<Refusal[]> {
  const refusals: Refusal[] = [];
  const rest = [...rows];
  const worker = async (): Promise<void> => {
    for (let row = rest.shift(); row; row = rest.shift()) {
      try {
        await run(row);
      } catch (error) {
        refusals.push({ row, failure: asFailure(error) });
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, rows.length) }, worker));
  return refusals;
}

export function bulk(action: BulkAction, rows: readonly Row[]): Promise<Refusal[]> {
  return inBulk(rows, (row) => act(action, row));
}
