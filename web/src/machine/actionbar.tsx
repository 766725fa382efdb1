// The actions on one machine.
import { useState, type ReactElement } from 'react';
import { Checkbox, Dropdown, DropdownItem, DropdownList, MenuToggle } from '@patternfly/react-core';
import { useRights } from '../kube/userights';
import { Act, denied } from '../parts/basics';
import { Confirm } from '../parts/confirm';
import { useNotify } from '../shell/notify';
import { goTo } from '../shell/useroute';
import { shown } from '../text/shown';
import { t } from '../text/en';
import { act, type Options } from './act';
import { actionNames, obstacle, rightFor, type ActionName, type PlainAction } from './actions';
import { CloneDialog } from './clones';
import type { Machine } from './page';
import { condition, isFinal } from './state';

const first: readonly PlainAction[] = ['start', 'stop', 'restart'];
const rest = actionNames.filter((a) => !(first as readonly ActionName[]).includes(a));
const questions: readonly PlainAction[] = ['stop', 'restart', 'delete', 'takeMaintenance'];

interface AskProps {
  action: PlainAction;
  machine: Machine;
  run: (action: PlainAction, options: Options) => Promise<void>;
  close: () => void;
}

function Question({ action, machine, run, close }: AskProps): ReactElement {
  const [readOnly, setReadOnly] = useState(false);
  const runs = machine.vmi !== undefined && !isFinal(machine.vmi);
  return (
    <Confirm
      title={`${t.action(action)}: ${shown(machine.name, 80)}`} action={t.action(action)} danger={action !== 'takeMaintenance'}
      typed={action === 'delete' ? machine.name : undefined} run={() => run(action, { readOnly })} close={close}
    >
      {action === 'stop' && <p>{t.machine.confirmStop}</p>}
      {action === 'restart' && <p>{t.machine.confirmRestart}</p>}
      {action === 'delete' && <p>{t.machine.confirmDelete}</p>}
      {action === 'takeMaintenance' && (
        <>
          <p>{t.machine.confirmMaintenance}</p>
          {runs && <p>{t.machine.confirmMaintenanceRuns}</p>}
          <Checkbox id="read-only" label={t.machine.readOnly} isChecked={readOnly} onChange={(_e, on) => {
            setReadOnly(on);
          }} />
        </>
      )}
    </Confirm>
  );
}

interface MoreProps {
  reasonOf: (action: ActionName) => string;
  choose: (action: ActionName) => void;
}

function More({ reasonOf, choose }: MoreProps): ReactElement {
  const [open, setOpen] = useState(false);
  return (
    <Dropdown
      isOpen={open} onOpenChange={setOpen} popperProps={{ position: 'right' }}
      toggle={(ref) => (
        <MenuToggle ref={ref} isExpanded={open} onClick={() => {
          setOpen(!open);
        }}>
          {t.machine.more}
        </MenuToggle>
      )}
    >
      <DropdownList>
        {rest.map((action) => {
          const reason = reasonOf(action);
          return (
            <DropdownItem
              key={action} isAriaDisabled={reason !== ''} description={reason === '' ? undefined : reason} isDanger={action === 'delete' && reason === ''}
              onClick={() => {
                if (reason !== '') return;
                setOpen(false);
                choose(action);
              }}
            >
              {t.action(action)}
            </DropdownItem>
          );
        })}
      </DropdownList>
    </Dropdown>
  );
}

export function ActionBar({ machine }: { machine: Machine }): ReactElement {
  const may = useRights(machine.namespace);
  const notify = useNotify();
  const [asked, setAsked] = useState<ActionName>();
  const [busy, setBusy] = useState<ActionName>();
  const runs = machine.vmi !== undefined && !isFinal(machine.vmi);
  const reasonOf = (action: ActionName): string => {
    const missing = denied(may, rightFor(action, machine.vm === undefined));
    if (missing !== '') return missing;
    const o = obstacle(action, machine);
    if (o === 'notMigratable') return `${t.obstacle(o)} ${shown(condition(machine.vmi, 'LiveMigratable')?.message)}`;
    return o === undefined ? '' : t.obstacle(o);
  };
  const run = async (action: PlainAction, options: Options = {}): Promise<void> => {
    await act(action, machine, options);
    notify.done(t.asked(action, shown(machine.name, 80)));
    if (action === 'delete') goTo({ page: 'machines', namespace: machine.namespace, words: '', status: '' });
  };
  const choose = (action: ActionName): void => {
    if (action === 'clone' || questions.includes(action)) {
      setAsked(action);
      return;
    }
    setBusy(action);
    run(action)
      .catch((error: unknown) => {
        notify.refused(`${t.action(action)}: ${t.failure.title}`, error);
      })
      .finally(() => {
        setBusy(undefined);
      });
  };
  const close = (): void => {
    setAsked(undefined);
  };
  return (
    <div className="dd-actions">
      {first.map((action) => (
        <Act key={action} reason={reasonOf(action)} busy={busy === action} onClick={() => {
          choose(action);
        }}>
          {t.action(action)}
        </Act>
      ))}
      <More reasonOf={reasonOf} choose={choose} />
      {asked === 'clone' && (
        <CloneDialog namespace={machine.namespace} source={{ kind: 'VirtualMachine', name: machine.name }} runs={runs} close={close} />
      )}
      {asked !== undefined && asked !== 'clone' && <Question action={asked} machine={machine} run={run} close={close} />}
    </div>
  );
}
