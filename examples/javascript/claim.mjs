#!/usr/bin/env node
// Runs a command while it holds a resource, over HTTP, with Node 18 or newer and no packages:
//
//     claim.mjs http://127.0.0.1:8892 nightly-report 15 sh -c 'echo $FENCING_TOKEN; sleep 60'
//
// waits in the queue, keeps the claim while the command runs, stops the command before another
// owner can hold the resource, and releases the claim. 15 is the TTL: if this program dies, the
// next one holds the resource after this number of seconds.
//
// A program that is stopped (SIGSTOP, Ctrl-Z, a suspended machine) neither renews the claim nor stops the
// command: after the TTL the next one holds the resource while the command still runs. When this program
// continues it stops the command at once. Meanwhile only the fencing token protects the resource. `locket run`
// has a guard, which stops the command in time.

import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { constants, hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const WAIT = 20; // seconds for which one request waits in the queue
const TIMEOUT = 5; // seconds for a request that does not wait
const TRUST = 0.75; // for this part of its TTL a claim counts as held, from the time when its renewal was sent
const GRACE = 0.15; // then the command has this part of the TTL to end; the rest is a margin

// credentials returns the header with the bearer credential in a file, for servers that require one. The file is read for
// each request.
async function credentials() {
  const file = process.env.LOCKET_CREDENTIAL_FILE;
  return file ? { Authorization: `Bearer ${(await readFile(file, "utf8")).trim()}` } : {};
}

// call returns the status and the JSON of an answer; 503 if there is no answer, or it says to ask again later.
async function call(method, url, { body, wait = 0, signal } = {}) {
  const attempt = new AbortController();
  const abort = () => attempt.abort();
  const timer = setTimeout(abort, (wait + TIMEOUT) * 1000);
  signal?.addEventListener("abort", abort);
  try {
    const answer = await fetch(url, {
      method,
      headers: { "Content-Type": "application/json", Prefer: `wait=${wait}`, ...(await credentials()) },
      body: body && JSON.stringify(body),
      signal: attempt.signal,
    });
    const later = answer.status === 429 && answer.headers.has("Retry-After"); // the server has too much to do
    return [later ? 503 : answer.status, JSON.parse((await answer.text()) || "null")];
  } catch (error) {
    return [503, error.message];
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  }
}

// claim calls work(token, signal) while it holds the resource. The work gets the fencing
// token, and a signal that is aborted when the resource is lost: it must stop then, within GRACE
// of the TTL, and return when nothing runs any more. The signal of the caller ends everything earlier.
export async function claim(url, resource, { ttl = 15, owner, signal } = {}, work) {
  // Since the id is chosen here, a POST can be repeated when its answer was lost: it
  // finds the claim that it made, at its place in the queue.
  const body = { id: randomUUID(), resource, ttl, owner };
  const claims = new URL("/v1/claims/", url);
  const mine = new URL(`${body.id}/`, claims);
  const over = new AbortController();
  const stop = () => over.abort(signal.reason);
  signal?.addEventListener("abort", stop);
  if (signal?.aborted) stop();
  let expiry, next; // timers

  async function renew() {
    const start = performance.now(); // a monotonic clock
    const [status, answer] = await call("PATCH", mine, { body: { ttl }, signal: over.signal });
    if (over.signal.aborted) return false;
    if (status === 200) {
      // The server counts from the time when it read the request, which is later than start. The timer
      // is needed because a holder that cannot renew must notice by itself when its time is over.
      clearTimeout(expiry);
      const expired = () => over.abort(new Error("lost the claim: no renewal came through"));
      expiry = setTimeout(expired, start + TRUST * ttl * 1000 - performance.now());
    } else if (status < 500) { // such as a revoked claim: another attempt would fail too
      over.abort(new Error(`lost the claim: ${JSON.stringify(answer)}`));
    }
    return status === 200;
  }

  function keep(renewed) {
    if (over.signal.aborted) return;
    const pause = renewed ? ttl / 3 : Math.min(1, ttl / 10); // time for a second attempt, and a third
    next = setTimeout(async () => keep(await renew()), pause * 1000);
  }

  try {
    let token;
    while (!token) {
      over.signal.throwIfAborted();
      const [status, answer] = await call("POST", claims, { body, wait: WAIT, signal: over.signal });
      // The answer does not say since when the claim is held. A renewal starts the TTL anew.
      if (status === 201 && (await renew())) token = answer.token;
      else if (status < 500 && status !== 201 && status !== 202) // 200: it has ended meanwhile
        throw new Error(`no claim: ${status} ${JSON.stringify(answer)}`);
      else if (!over.signal.aborted) await sleep(1000); // a server that shuts down does not wait
    }
    keep(true);
    const result = await work(token, over.signal);
    over.signal.throwIfAborted();
    return result;
  } finally {
    over.abort(new Error("the claim was given back"));
    signal?.removeEventListener("abort", stop);
    clearTimeout(expiry);
    clearTimeout(next);
    // A claim that waits is ended too, so that it does not delay others. If no attempt
    // succeeds, the claim ends with its TTL.
    for (let i = 0; i < 3 && (await call("DELETE", mine))[0] >= 500; i++) await sleep(1000);
  }
}

async function main(url, resource, ttl, program, ...args) {
  const stop = new AbortController();
  for (const name of ["SIGINT", "SIGTERM"]) process.on(name, () => stop.abort(new Error("stopped")));
  const owner = `${hostname()}/${process.pid}/${randomUUID()}`; // unique, since owners identify holders
  return claim(url, resource, { ttl: Number(ttl), owner, signal: stop.signal }, async (token, signal) => {
    console.log(`token ${token}`);
    // What stores the result refuses a token smaller than the last one that it saw.
    const env = { ...process.env, FENCING_TOKEN: token };
    return run(program, args, env, signal, GRACE * Number(ttl) * 1000); // release it only when nothing uses it any more
  });
}

// The guard runs a moment longer than this program: when this program has ended in any way, the pipe is
// closed, and the guard kills the process group of the command.
const GUARD = 'read -r _; kill -s KILL -- "-$1"';
// The command begins when the guard runs: a line opens the gate, which stays closed if this program ends first.
const GATE = 'read -r _ <&3 && exec "$@" 3<&-';

// run runs a command in a process group of its own, and returns its exit code. When the signal is
// aborted, the command gets TERM, and KILL after grace milliseconds. All processes of its group are
// stopped with it, also when the command has ended by itself, so that nothing runs without the lock.
async function run(program, args, env, signal, grace) {
  const stdio = ["inherit", "inherit", "inherit", "pipe"];
  const child = spawn("sh", ["-c", GATE, "gate", program, ...args], { stdio, env, detached: true });
  const ended = once(child, "exit");
  await once(child, "spawn");
  const guard = spawn("sh", ["-c", GUARD, "guard", child.pid], { stdio: ["pipe", "ignore", "ignore"], detached: true });
  await once(guard, "spawn");
  child.stdio[3].on("error", () => {}).end("\n"); // the child may have ended
  const lost = new Promise((resolve) => (signal.aborted ? resolve() : signal.addEventListener("abort", resolve)));
  await Promise.race([ended, lost]);
  const killAt = performance.now() + grace;
  for (const [number, deadline] of [["SIGTERM", killAt], ["SIGKILL", killAt + 1000]]) {
    kill(child, number);
    while (kill(child, 0) && performance.now() < deadline) await sleep(10);
  }
  const [code, name] = await ended;
  guard.kill("SIGKILL");
  return code ?? 128 + constants.signals[name]; // as a shell reports it
}

// kill sends a signal to a process group, 0 for none, and returns whether any process of it is left.
function kill(leader, number) {
  try {
    return process.kill(-leader.pid, number);
  } catch {
    return false;
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  if (process.argv.length < 6) {
    console.error("usage: claim.mjs URL RESOURCE TTL COMMAND...");
    process.exit(1);
  }
  try {
    process.exitCode = await main(...process.argv.slice(2));
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}
