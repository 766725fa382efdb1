// Notices of what was done, and of what was refused.
import { createContext, useCallback, useContext, useMemo, useState, type ReactElement, type ReactNode } from 'react';
import { Alert, AlertActionCloseButton, AlertGroup } from '@patternfly/react-core';
import { asFailure } from '../kube/failure';
import { Foreign } from '../parts/basics';
import { t } from '../text/en';

interface Notice {
  id: number;
  title: string;
  error?: unknown;
}

export interface Notify {
  done: (title: string) => void;
  refused: (title: string, error: unknown) => void;
}

const Context = createContext<Notify>({ done: () => undefined, refused: () => undefined });

export function useNotify(): Notify {
  return useContext(Context);
}

const most = 3;
// Failures stay until they are closed.
const lifetime = 8_000;

function Content({ error }: { error: unknown }): ReactElement {
  const failure = asFailure(error);
  return (
    <>
      <p><Foreign text={failure.message} most={1000} /></p>
      <p>{t.failure.advice(failure.code, failure.reason)}</p>
    </>
  );
}

export function Notices({ children }: { children: ReactNode }): ReactElement {
  const [notices, setNotices] = useState<Notice[]>([]);
  const close = useCallback((id: number) => {
    setNotices((all) => all.filter((n) => n.id !== id));
  }, []);
  const notify = useMemo<Notify>(() => {
    const add = (notice: Omit<Notice, 'id'>): void => {
      setNotices((all) => [...all, { ...notice, id: (all.at(-1)?.id ?? 0) + 1 }].slice(-most));
    };
    return {
      done: (title) => {
        add({ title });
      },
      refused: (title, error) => {
        add({ title, error });
      },
    };
  }, []);
  return (
    <Context.Provider value={notify}>
      {children}
      <AlertGroup hasAnimations={false} isToast isLiveRegion>
        {notices.map((n) => (
          <Alert
            key={n.id} component="p" title={n.title} variant={n.error ? 'danger' : 'success'} timeout={n.error ? false : lifetime}
            onTimeout={() => {
              close(n.id);
            }}
            actionClose={<AlertActionCloseButton onClose={() => {
              close(n.id);
            }} />}
          >
            {n.error ? <Content error={n.error} /> : null}
          </Alert>
        ))}
      </AlertGroup>
    </Context.Provider>
  );
}
