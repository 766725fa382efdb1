// A plain table of a few rows.
import type { ReactElement, ReactNode } from 'react';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';

export interface PlainRow {
  key: string;
  cells: ReactNode[];
}

interface Props {
  label: string;
  heads: string[];
  rows: PlainRow[];
  // Heads of columns whose cells stay on one line.
  narrow?: string[];
  // What is shown instead of a table without rows.
  empty?: ReactNode;
}

export function PlainTable({ label, heads, rows, narrow = [], empty }: Props): ReactElement {
  if (rows.length === 0) return <p>{empty}</p>;
  return (
    <Table aria-label={label} variant="compact" gridBreakPoint="grid-md">
      <Thead>
        <Tr>{heads.map((h) => <Th key={h} modifier={narrow.includes(h) ? 'nowrap' : 'wrap'}>{h}</Th>)}</Tr>
      </Thead>
      <Tbody>
        {rows.map((row) => (
          <Tr key={row.key}>
            {row.cells.map((cell, i) => <Td key={heads[i]} dataLabel={heads[i] ?? ''} modifier={narrow.includes(heads[i] ?? '') ? 'nowrap' : 'breakWord'}>{cell}</Td>)}
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}
