// The actions on the selected machines.
import { useState, type ReactElement } from 'react';
import { Button } from '@patternfly/react-core';
import { Failure } from '../kube/failure';
import { wishText } from '../kube/rights';
import { useRightsIn } from '../kube/userights';
import { Act } from '../parts/basics';
import { Confirm } from '../parts/confirm';
import { useNotify } from '../shell/notify';
import { rightFor } from '../machine/actions';
import { t } from '../text/en';
import { bulk, bulkActions, possible, type BulkAction } from './bulk';
import type { Row } from './rows';

export function BulkBar({ rows, clear }: { rows: readonly Row[]; clear: () => void }): ReactElement {
  const may = useRightsIn([...new Set(rows.map((r) => r.namespace))]);
  const [asked, setAsked] = useState<BulkAction>();
  const notify = useNotify();
  const reasonOf = (action: BulkAction): string => {
    if (rows.length === 0) return t.machines.noneSelected;
    const wish = rightFor(action, false);
    if (may(wish) === 'no') return t.rights.missingSome(wishText(wish));
    return possible(action, rows).length === 0 ? t.machines.noneFits : '';
  };
  const run = async (action: BulkAction): Promise<void> => {
    const fit = possible(action, rows);
    const refusals = await bulk(action, fit);
    const name = t.action(action);
    if (fit.length > refusals.length) notify.done(t.machines.bulkDone(name, fit.length - refusals.length));
    if (refusals.length > 0) {
      const lines = refusals.slice(0, 5).map((r) => `${r.row.name}: ${r.failure.message}`).join('; ');
      notify.refused(t.machines.bulkFailed(name, refusals.length), new Failure(refusals[0]?.failure.code ?? 0, '', lines));
    } else {
      clear();
    }
  };
  const skipped = asked ? rows.length - possible(asked, rows).length : 0;
  return (
    <section className="dd-tools dd-bulk" aria-label={t.machines.bulk}>
      {bulkActions.map((action) => (
        <Act key={action} small reason={reasonOf(action)} onClick={() => {
          setAsked(action);
        }}>
          {t.action(action)}
        </Act>
      ))}
      <span role="status">{rows.length > 0 && t.count.selected(rows.length)}</span>
      {rows.length > 0 && <Button variant="link" isInline onClick={clear}>{t.machines.clear}</Button>}
      {asked && (
        <Confirm
          title={t.machines.confirm(t.action(asked), possible(asked, rows).length)} action={t.action(asked)} danger={asked !== 'start'}
          run={() => run(asked)} close={() => {
            setAsked(undefined);
          }}
        >
          <p>{t.machines.confirmText[asked]}</p>
          {skipped > 0 && <p>{t.machines.skipped(skipped)}</p>}
        </Confirm>
      )}
    </section>
  );
}
