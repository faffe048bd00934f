// What an AbortSignal ends.

/**
 * orAborted waits for a promise until signal is aborted, whose reason is thrown then. A fetch alone may go on for ever: the
 * signal can be collected with its request, after which it ends neither the answer nor the body.
 */
export function orAborted(signal, promise) {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop);
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
  });
}
