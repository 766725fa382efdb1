// The frame around each page: name, navigation, colours.
import { useState, type MouseEvent, type ReactElement, type ReactNode } from 'react';
import {
  Button, Content, FormSelect, FormSelectOption, Masthead, MastheadBrand, MastheadContent, MastheadLogo, MastheadMain,
  MastheadToggle, Nav, NavItem, NavList, Page, PageSidebar, PageSidebarBody, PageToggleButton, SkipToContent, Toolbar,
  ToolbarContent, ToolbarItem,
} from '@patternfly/react-core';
import { t } from '../text/en';
import type { Route } from './route';
import { Account } from './signin';
import { setTheme, storedTheme, type Theme } from './theme';

const themes: readonly Theme[] = ['system', 'light', 'dark'];
const mainId = 'main';

function ThemeChoice(): ReactElement {
  const [theme, setState] = useState(storedTheme);
  return (
    <FormSelect
      aria-label={t.theme.label} value={theme} className="dd-theme"
      onChange={(_e, value) => {
        setState(value as Theme);
        setTheme(value as Theme);
      }}
    >
      {themes.map((value) => <FormSelectOption key={value} value={value} label={t.theme[value]} />)}
    </FormSelect>
  );
}

function Header(): ReactElement {
  return (
    <Masthead>
      <MastheadMain>
        <MastheadToggle>
          <PageToggleButton isHamburgerButton aria-label={t.toggleNavigation} />
        </MastheadToggle>
        <MastheadBrand>
          <MastheadLogo href="#/machines"><span className="dd-brand">{t.product}</span></MastheadLogo>
        </MastheadBrand>
      </MastheadMain>
      <MastheadContent>
        <Toolbar isFullHeight isStatic>
          <ToolbarContent>
            <ToolbarItem align={{ default: 'alignEnd' }}><Account /></ToolbarItem>
            <ToolbarItem><ThemeChoice /></ToolbarItem>
          </ToolbarContent>
        </Toolbar>
      </MastheadContent>
    </Masthead>
  );
}

const entries: readonly { id: Route['page']; href: string; text: string }[] = [
  { id: 'machines', href: '#/machines', text: t.nav.machines },
  { id: 'create', href: '#/create', text: t.nav.create },
  { id: 'volumes', href: '#/volumes', text: t.nav.volumes },
  { id: 'types', href: '#/types', text: t.nav.types },
  { id: 'migrations', href: '#/migrations', text: t.nav.migrations },
  { id: 'nodes', href: '#/nodes', text: t.nav.nodes },
];

function Navigation({ page }: { page: Route['page'] }): ReactElement {
  const active = page === 'machine' ? 'machines' : page;
  return (
    <PageSidebar>
      <PageSidebarBody>
        <Nav aria-label={t.mainNavigation}>
          <NavList>
            {entries.map((e) => (
              <NavItem key={e.id} itemId={e.id} isActive={active === e.id} to={e.href}>{e.text}</NavItem>
            ))}
          </NavList>
        </Nav>
      </PageSidebarBody>
    </PageSidebar>
  );
}

// The address's fragment is the page's own, so the link moves the focus itself.
function skip(event: MouseEvent): void {
  event.preventDefault();
  document.getElementById(mainId)?.focus();
}

export function Frame({ page, children }: { page: Route['page']; children: ReactNode }): ReactElement {
  return (
    <Page
      isManagedSidebar mainContainerId={mainId} masthead={<Header />} sidebar={<Navigation page={page} />}
      skipToContent={<SkipToContent href="#main" onClick={skip}>{t.skip}</SkipToContent>}
    >
      {children}
    </Page>
  );
}

export function PageTitle({ title, children }: { title: ReactNode; children?: ReactNode }): ReactElement {
  return (
    <div className="dd-title">
      <Content component="h1">{title}</Content>
      {children}
    </div>
  );
}

export function LinkButton({ href, children, variant = 'primary' }: {
  href: string; children: ReactNode; variant?: 'primary' | 'link' | 'secondary';
}): ReactElement {
  return <Button component="a" href={href} variant={variant}>{children}</Button>;
}
