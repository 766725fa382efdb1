// Keeps a fault in one part of the page from the others: it shows a sentence in the part's place.
import { Component, type ReactElement, type ReactNode } from 'react';
import { Alert, AlertActionLink } from '@patternfly/react-core';
import { asFailure } from '../kube/failure';
import { t } from '../text/en';
import { Foreign } from './basics';
import { forgetFailures } from './lazily';

interface Props {
  // The place in the page: another one is drawn again although the last one failed.
  place: string;
  heading: 'h1' | 'h2';
  children: ReactNode;
}

interface State {
  place: string;
  error?: unknown;
}

function Fault({ error, heading, again }: { error: unknown; heading: Props['heading']; again: () => void }): ReactElement {
  return (
    <Alert
      isInline isLiveRegion variant="danger" title={t.fault.title} component={heading} className="dd-fault"
      actionLinks={
        <>
          <AlertActionLink onClick={again}>{t.fault.again}</AlertActionLink>
          <AlertActionLink onClick={() => {
            location.reload();
          }}>{t.fault.reload}</AlertActionLink>
        </>
      }
    >
      <p><Foreign text={asFailure(error).message} most={1000} /></p>
      <p>{t.fault.advice}</p>
    </Alert>
  );
}

// React has no hook for this: only a class can catch.
export class Boundary extends Component<Props, State> {
  override state: State = { place: this.props.place };

  static getDerivedStateFromError(error: unknown): Partial<State> {
    return { error };
  }

  static getDerivedStateFromProps(props: Props, state: State): State | null {
    return props.place === state.place ? null : { place: props.place, error: undefined };
  }

  override render(): ReactNode {
    if (this.state.error === undefined) return this.props.children;
    return (
      <Fault error={this.state.error} heading={this.props.heading} again={() => {
        forgetFailures();
        this.setState({ error: undefined });
      }} />
    );
  }
}
