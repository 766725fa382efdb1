// A question before something that can't be taken back.
import { useState, type ReactElement, type ReactNode } from 'react';
import { Button, Form, FormGroup, Modal, ModalBody, ModalFooter, ModalHeader, TextInput } from '@patternfly/react-core';
import { t } from '../text/en';
import { FailureAlert } from './basics';

interface Props {
  title: string;
  action: string;
  danger?: boolean;
  // If set, this text must be typed.
  typed?: string;
  blocked?: boolean;
  children?: ReactNode;
  // The dialog closes when it resolves, and shows why if it does not.
  run: () => Promise<void>;
  close: () => void;
}

export function Confirm({ title, action, danger = false, typed, blocked = false, children, run, close }: Props): ReactElement {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const [text, setText] = useState('');
  const ready = !blocked && (typed === undefined || text === typed);
  const go = async (): Promise<void> => {
    if (!ready || busy) return;
    setBusy(true);
    setError(undefined);
    try {
      await run();
      close();
    } catch (failure) {
      setError(failure);
      setBusy(false);
    }
  };
  return (
    <Modal isOpen variant="small" onClose={close} aria-label={title} disableFocusTrap={false}>
      <ModalHeader title={title} titleIconVariant={danger ? 'warning' : undefined} />
      <ModalBody>
        {error !== undefined && <FailureAlert error={error} />}
        {children}
        {typed !== undefined && (
          <Form onSubmit={(e) => {
            e.preventDefault();
            void go();
          }}>
            <FormGroup label={t.machine.confirmDeleteName(typed)} fieldId="confirm-text">
              <TextInput id="confirm-text" value={text} autoComplete="off" onChange={(_e, value) => {
                setText(value);
              }} />
            </FormGroup>
          </Form>
        )}
      </ModalBody>
      <ModalFooter>
        <Button
          variant={danger ? 'danger' : 'primary'} isAriaDisabled={!ready || busy} isLoading={busy} spinnerAriaLabel={t.loading}
          onClick={() => void go()}
        >
          {action}
        </Button>
        <Button variant="link" onClick={close}>{t.cancel}</Button>
      </ModalFooter>
    </Modal>
  );
}
