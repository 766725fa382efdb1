// Signing in with a token, where the console runs in a cluster, and signing out.
import { useState, type SyntheticEvent, type ReactElement } from 'react';
import { Alert, Button, Content, Form, FormGroup, PageSection, TextInput, Title } from '@patternfly/react-core';
import { asFailure } from '../kube/failure';
import { Foreign } from '../parts/basics';
import { t } from '../text/en';
import { account, leaveForProvider, signIn, signOut } from './session';

export function SignIn({ provider }: { provider: boolean }): ReactElement {
  const [token, setToken] = useState('');
  const [busy, setBusy] = useState(false);
  const [said, setSaid] = useState('');
  const submit = (event: SyntheticEvent): void => {
    event.preventDefault();
    setBusy(true);
    signIn(token).catch((error: unknown) => {
      setSaid(asFailure(error).message);
      setBusy(false);
    });
  };
  return (
    <main>
      <PageSection hasBodyWrapper={false}>
        <Title headingLevel="h1">{t.signIn.title}</Title>
        {provider && <Content component="p"><Button onClick={leaveForProvider}>{t.signIn.provider}</Button></Content>}
        <Content component="p">{t.signIn.help}</Content>
        {said !== '' && <Alert variant="danger" isInline isLiveRegion title={t.signIn.refused}><Foreign text={said} /></Alert>}
        <Form onSubmit={submit}>
          <FormGroup label={t.signIn.token} fieldId="token">
            <TextInput
              id="token" type="password" autoComplete="off" spellCheck={false} isRequired value={token} onChange={(_e, value) => {
                setToken(value);
              }}
            />
          </FormGroup>
          <div><Button type="submit" variant={provider ? 'secondary' : 'primary'} isDisabled={busy || token.trim() === ''} isLoading={busy}>{t.signIn.do}</Button></div>
        </Form>
      </PageSection>
    </main>
  );
}

// Account shows who is signed in; virtctl web has nobody to show.
export function Account(): ReactElement | null {
  const user = account();
  if (user === undefined) return null;
  return (
    <>
      <Foreign text={user} />{' '}
      <Button variant="link" isInline onClick={() => void signOut()}>{t.signIn.out}</Button>
    </>
  );
}
