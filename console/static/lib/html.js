// The view library: Preact with its hooks, and htm instead of JSX.
import {h, render} from '../vendor/preact.js';
import htm from '../vendor/htm.js';

export const html = htm.bind(h);
export {h, render};
export {useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState} from '../vendor/hooks.js';
