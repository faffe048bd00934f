// The SharedWorker of all tabs of a browser: they share one stream of the server.
import {createHub} from './lib/hub.js';

const connect = createHub();

self.onconnect = ({ports: [port]}) => {
  const receive = connect((message) => port.postMessage(message));
  port.onmessage = ({data}) => receive(data);
  port.addEventListener('close', () => receive({type: 'bye'})); // the tab has crashed
};
