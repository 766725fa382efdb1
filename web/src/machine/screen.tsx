// The guest's screen.
import RFB from '@novnc/novnc';
import { useEffect, useRef, useState, type ReactElement, type RefObject } from 'react';
import {
  Button, Checkbox, Dropdown, DropdownItem, DropdownList, Form, FormGroup, MenuToggle, Modal, ModalBody, ModalFooter, ModalHeader, TextArea,
} from '@patternfly/react-core';
import { subresourceGroup } from '../kube/paths';
import { useRights } from '../kube/userights';
import { denied } from '../parts/basics';
import { t } from '../text/en';
import { combinations, keysymOf, pressed } from './keys';
import type { Machine } from './page';
import { StreamFrame } from './streamframe';
import { leaves, openStream, type StreamState } from './stream';

interface Props {
  namespace: string;
  name: string;
  viewOnly: boolean;
  viewRef: RefObject<RFB | null>;
  onState: (state: StreamState) => void;
  leave: () => void;
}

function View({ namespace, name, viewOnly, viewRef, onState, leave }: Props): ReactElement {
  const host = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = host.current;
    if (!element) return undefined;
    onState('connecting');
    const rfb = new RFB(element, openStream(namespace, name, 'vnc'), { shared: true });
    rfb.scaleViewport = true;
    rfb.background = 'transparent';
    viewRef.current = rfb;
    let opened = false;
    rfb.addEventListener('connect', () => {
      opened = true;
      const canvas = element.querySelector('canvas');
      canvas?.setAttribute('role', 'application');
      canvas?.setAttribute('aria-label', `${t.screen.label}. ${t.screen.hint}`);
      onState('connected');
    });
    rfb.addEventListener('disconnect', () => {
      onState(opened ? 'ended' : 'refused');
    });
    // noVNC listens at its canvas, below this element.
    const key = (event: KeyboardEvent): void => {
      if (!leaves(event)) return;
      event.preventDefault();
      event.stopPropagation();
      leave();
    };
    element.addEventListener('keydown', key, { capture: true });
    return () => {
      element.removeEventListener('keydown', key, { capture: true });
      viewRef.current = null;
      rfb.disconnect();
    };
  }, [namespace, name, viewRef, onState, leave]);
  useEffect(() => {
    if (viewRef.current) viewRef.current.viewOnly = viewOnly;
  });
  return <div ref={host} className="dd-screen" />;
}

function KeyMenu({ viewRef }: { viewRef: RefObject<RFB | null> }): ReactElement {
  const [open, setOpen] = useState(false);
  return (
    <Dropdown
      isOpen={open} onOpenChange={setOpen}
      toggle={(ref) => (
        <MenuToggle ref={ref} size="sm" isExpanded={open} onClick={() => {
          setOpen(!open);
        }}>
          {t.screen.keys}
        </MenuToggle>
      )}
    >
      <DropdownList>
        {combinations.map(({ name, keys }) => (
          <DropdownItem key={name} onClick={() => {
            for (const [k, down] of pressed(keys)) viewRef.current?.sendKey(k.keysym, k.code, down);
            setOpen(false);
          }}>
            {name}
          </DropdownItem>
        ))}
      </DropdownList>
    </Dropdown>
  );
}

function TypeText({ viewRef, close }: { viewRef: RefObject<RFB | null>; close: () => void }): ReactElement {
  const [text, setText] = useState('');
  return (
    <Modal isOpen variant="small" onClose={close} aria-label={t.screen.typeTitle}>
      <ModalHeader title={t.screen.typeTitle} description={t.screen.typeHint} />
      <ModalBody>
        <Form>
          <FormGroup label={t.screen.text} fieldId="type-text">
            <TextArea id="type-text" value={text} maxLength={4096} resizeOrientation="vertical" onChange={(_e, value) => {
              setText(value);
            }} />
          </FormGroup>
        </Form>
      </ModalBody>
      <ModalFooter>
        <Button onClick={() => {
          for (const character of text) viewRef.current?.sendKey(keysymOf(character), null);
          close();
        }}>{t.screen.send}</Button>
        <Button variant="link" onClick={close}>{t.cancel}</Button>
      </ModalFooter>
    </Modal>
  );
}

interface ToolsProps {
  viewRef: RefObject<RFB | null>;
  viewOnly: boolean;
  setViewOnly: (on: boolean) => void;
  first: RefObject<HTMLButtonElement | null>;
}

function Tools({ viewRef, viewOnly, setViewOnly, first }: ToolsProps): ReactElement {
  const [typing, setTyping] = useState(false);
  return (
    <>
      <Button ref={first} size="sm" variant="secondary" onClick={() => {
        void document.querySelector('.dd-screen')?.requestFullscreen();
      }}>{t.screen.fullScreen}</Button>
      <KeyMenu viewRef={viewRef} />
      <Button size="sm" variant="secondary" onClick={() => {
        setTyping(true);
      }}>{t.screen.typeText}</Button>
      <Checkbox id="view-only" label={t.screen.viewOnly} isChecked={viewOnly} onChange={(_e, on) => {
        setViewOnly(on);
      }} />
      {typing && <TypeText viewRef={viewRef} close={() => {
        setTyping(false);
      }} />}
    </>
  );
}

export function ScreenTab({ machine }: { machine: Machine }): ReactElement {
  const may = useRights(machine.namespace);
  const [state, setState] = useState<StreamState>('connecting');
  const [attempt, setAttempt] = useState(0);
  const [viewOnly, setViewOnly] = useState(false);
  const viewRef = useRef<RFB>(null);
  const first = useRef<HTMLButtonElement>(null);
  const [leave] = useState(() => () => {
    if (document.fullscreenElement) void document.exitFullscreen();
    first.current?.focus();
  });
  return (
    <StreamFrame
      machine={machine} verb="vnc" state={state} texts={t.screen} again={() => {
        setAttempt(attempt + 1);
      }}
      missing={denied(may, { verb: 'get', group: subresourceGroup, resource: 'virtualmachineinstances/vnc' })}
      without={machine.vmi?.spec.domain?.devices?.autoattachGraphicsDevice === false}
      tools={<Tools viewRef={viewRef} viewOnly={viewOnly} setViewOnly={setViewOnly} first={first} />}
    >
      <View
        key={`${machine.vmi?.metadata.uid ?? ''}/${String(attempt)}`} namespace={machine.namespace} name={machine.name} viewOnly={viewOnly}
        viewRef={viewRef} onState={setState} leave={leave}
      />
    </StreamFrame>
  );
}
