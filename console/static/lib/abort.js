// Promises that an AbortSignal ends.

/**
 * orAborted waits for a promise until signal is aborted, and then throws the signal's reason. A fetch may ignore its signal:
 * once the signal is collected with the request, it ends neither the answer nor the body.
 */
export function orAborted(signal, promise) {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop);
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
  });
}
