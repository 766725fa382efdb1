// The entry: takes the code out of the address before anything else runs.
import '@patternfly/react-core/dist/styles/base.css';
import { createRoot } from 'react-dom/client';
import { followVisibility } from '../kube/lists';
import { followPictures } from '../pictures/picture';
import { App } from './app';
import { takeCode } from './session';
import { followTheme } from './theme';
// After PatternFly's styles, which come with its components.
import './style.css';

const code = takeCode();
followTheme();
followVisibility(document);
followPictures(document);
const place = document.getElementById('app');
if (place) createRoot(place).render(<App code={code} />);
