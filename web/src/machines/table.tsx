// The table of machines. Only the rows that can be seen are drawn.
import { memo, useCallback, useRef, type ReactElement } from 'react';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { Checkbox } from '@patternfly/react-core';
import { memoryText } from '../kube/quantity';
import { Foreign, StatusLabel } from '../parts/basics';
import { Picture } from '../pictures/picture';
import { machineRoute } from '../shell/route';
import { shown } from '../text/shown';
import { t } from '../text/en';
import type { Column, Row } from './rows';
import { useWindow } from './usewindow';

interface RowProps {
  row: Row;
  index: number;
  selected: boolean;
  pictures: boolean;
  select: (key: string, on: boolean) => void;
}

const names = t.machines.columns;
const checkCell = 'pf-v6-c-table__check';

function Addresses({ row }: { row: Row }): ReactElement {
  const { addresses } = row;
  return (
    <span title={shown(addresses.join(', '))}>
      <Foreign text={addresses[0]} most={45} />{addresses.length > 1 && ` +${String(addresses.length - 1)}`}
    </span>
  );
}

const MachineRow = memo(function MachineRow({ row, index, selected, pictures, select }: RowProps): ReactElement {
  const sentence = row.sentence === '' && row.restartRequired ? t.machines.restart : row.sentence;
  const size = row.instanceType === '' ? row.cpus : undefined;
  return (
    <Tr data-row={row.key} aria-rowindex={index + 2} className="dd-row">
      <Td className={checkCell}>
        <Checkbox
          id={`select-${row.key}`} isChecked={selected} aria-label={t.machines.select(shown(row.name, 80))} onChange={(_e, on) => {
            select(row.key, on);
          }}
        />
      </Td>
      {pictures && <Td dataLabel={t.pictures.column} className="dd-col-picture"><Picture vmi={row.vmi} /></Td>}
      <Td dataLabel={names.name}>
        <div className="dd-lines">
          <a href={machineRoute(row.namespace, row.name)} title={shown(row.name)}><Foreign text={row.name} most={80} /></a>
          <small><Foreign text={row.namespace} most={63} />{row.vm ? '' : ` – ${t.machines.instance}`}</small>
        </div>
      </Td>
      <Td dataLabel={names.status}>
        <div className="dd-lines">
          <span><StatusLabel status={row.status} /></span>
          <small title={shown(sentence)}><Foreign text={sentence} most={200} /></small>
        </div>
      </Td>
      <Td dataLabel={names.node}>
        <div className="dd-lines">
          <span title={shown(row.node)}><Foreign text={row.node} most={63} /></span>
          <small className="dd-address"><Addresses row={row} /></small>
        </div>
      </Td>
      <Td dataLabel={names.address} className="dd-col-address"><div className="dd-line"><Addresses row={row} /></div></Td>
      <Td dataLabel={names.cpus}>
        <div className="dd-line">{size ?? row.cpus ?? <Foreign text={row.instanceType} most={40} />}</div>
      </Td>
      <Td dataLabel={names.memory}><div className="dd-line"><Foreign text={memoryText(row.memory)} most={20} /></div></Td>
    </Tr>
  );
});

interface Props {
  rows: readonly Row[];
  selected: ReadonlySet<string>;
  select: (key: string, on: boolean) => void;
  selectAll: (on: boolean) => void;
  pictures: boolean;
  column: Column;
  descending: boolean;
  sort: (column: Column, descending: boolean) => void;
}

const shownColumns: readonly Column[] = ['name', 'status', 'node', 'address', 'cpus', 'memory'];

export function MachineTable({ rows, selected, select, selectAll, pictures, column, descending, sort }: Props): ReactElement {
  const body = useRef<HTMLTableSectionElement>(null);
  const view = useWindow(body, rows.length);
  const index = shownColumns.indexOf(column);
  const sorting = useCallback(
    (at: number) => ({
      sortBy: { index, direction: descending ? ('desc' as const) : ('asc' as const) },
      onSort: (_e: unknown, to: number, direction: 'asc' | 'desc') => {
        sort(shownColumns[to] ?? 'name', direction === 'desc');
      },
      columnIndex: at,
    }),
    [index, descending, sort],
  );
  return (
    <Table
      aria-label={t.machines.tableLabel} aria-rowcount={rows.length + 1} variant="compact" gridBreakPoint="grid-lg" className="dd-machines"
    >
      <Thead>
        <Tr aria-rowindex={1}>
          <Th className={checkCell} aria-label={t.machines.selectAll}>
            <Checkbox
              id="select-all" aria-label={t.machines.selectAll} isChecked={rows.length > 0 && rows.every((r) => selected.has(r.key))}
              onChange={(_e, on) => {
                selectAll(on);
              }}
            />
          </Th>
          {pictures && <Th modifier="nowrap" className="dd-col-picture">{t.pictures.column}</Th>}
          {shownColumns.map((c, at) => <Th key={c} sort={sorting(at)} modifier="nowrap" className={`dd-col-${c}`}>{names[c]}</Th>)}
        </Tr>
      </Thead>
      <Tbody ref={body}>
        {view.before > 0 && <tr aria-hidden style={{ height: view.before }}><td /></tr>}
        {rows.slice(view.first, view.end).map((row, i) => (
          <MachineRow key={row.key} row={row} index={view.first + i} selected={selected.has(row.key)} pictures={pictures} select={select} />
        ))}
        {view.after > 0 && <tr aria-hidden style={{ height: view.after }}><td /></tr>}
      </Tbody>
    </Table>
  );
}
