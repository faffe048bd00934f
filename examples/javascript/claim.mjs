#!/usr/bin/env node
// Runs a command while it holds a resource, over HTTP, with Node 18 or newer and no packages:
//
//     claim.mjs http://127.0.0.1:8892 nightly-report 15 sh -c 'echo $FENCING_TOKEN; sleep 60'
//
// waits for its turn, keeps the claim while the command runs, stops the command before somebody
// else can have the resource, and gives the claim back. 15 is the TTL: so many seconds after
// this program has died, the next one has its turn.

import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { constants, hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const WAIT = 20; // seconds for which one request waits for its turn
const TIMEOUT = 5; // seconds for a request that does not wait
const TRUST = 0.75; // for so much of its TTL a claim counts as ours, from when its renewal was sent
const GRACE = 0.15; // then the command has so much of the TTL to end, and the rest is a margin

// credentials say who calls, if the server asks: with a bearer credential in a file, which is read for each
// request.
async function credentials() {
  const file = process.env.LOCKET_CREDENTIAL_FILE;
  return file ? { Authorization: `Bearer ${(await readFile(file, "utf8")).trim()}` } : {};
}

// call returns the status and the JSON of an answer; 503 when there is none.
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
    return [answer.status, JSON.parse((await answer.text()) || "null")];
  } catch (error) {
    return [503, error.message];
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  }
}

// claim does work(token, signal) while it holds the resource. The work gets the fencing
// token and a signal that is aborted when the resource is ours no longer: stop then, in GRACE
// of the TTL, and return when nothing is left running. The caller's signal ends it all before its time.
export async function claim(url, resource, { ttl = 15, owner, signal } = {}, work) {
  // With an id that is chosen here, a POST can be repeated when its answer was lost: it
  // finds the claim that it made, at its place in the line.
  const body = { id: randomUUID(), resource, ttl, owner };
  const claims = new URL("/v1/claims/", url);
  const mine = new URL(`${body.id}/`, claims);
  const over = new AbortController();
  const stop = () => over.abort(signal.reason);
  signal?.addEventListener("abort", stop);
  if (signal?.aborted) stop();
  let expiry, next; // timers

  async function renew() {
    const start = performance.now(); // a clock that nobody sets
    const [status, answer] = await call("PATCH", mine, { body: { ttl }, signal: over.signal });
    if (over.signal.aborted) return false;
    if (status === 200) {
      // The server counts from when it has read the request: later than start. A timer
      // of our own, because whoever cannot renew must know by himself when his time is up.
      clearTimeout(expiry);
      const expired = () => over.abort(new Error("lost the claim: no renewal came through"));
      expiry = setTimeout(expired, start + TRUST * ttl * 1000 - performance.now());
    } else if (status < 500) { // revoked, say: trying again is of no use
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
      // Since when it is ours, nobody has told us. A renewal starts the TTL anew.
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
    // Also when it still waits: nobody should wait behind it for nothing. If this never
    // works, the claim ends with its TTL.
    for (let i = 0; i < 3 && (await call("DELETE", mine))[0] >= 500; i++) await sleep(1000);
  }
}

async function main(url, resource, ttl, program, ...args) {
  const stop = new AbortController();
  for (const name of ["SIGINT", "SIGTERM"]) process.on(name, () => stop.abort(new Error("stopped")));
  const owner = `${hostname()}/${process.pid}/${randomUUID()}`; // one owner is one party
  return claim(url, resource, { ttl: Number(ttl), owner, signal: stop.signal }, async (token, signal) => {
    console.log(`token ${token}`);
    // Whoever stores the result refuses a token smaller than the last that it saw.
    const env = { ...process.env, FENCING_TOKEN: token };
    return run(program, args, env, signal, GRACE * Number(ttl) * 1000); // give back only what is no longer used
  });
}

// The guard outlives this program by a moment: when that is gone, however it ended, the pipe is
// closed, and the guard kills the command's process group.
const GUARD = 'read -r _; kill -s KILL -- "-$1"';
// The command begins when the guard is there: the gate opens by a line, and stays closed when this program ends first.
const GATE = 'read -r _ <&3 && exec "$@" 3<&-';

// run runs a command in a process group of its own, and returns its exit code. When the signal is
// aborted, the command gets TERM, and KILL after grace milliseconds. What the command has started is
// stopped with it, and also when the command has ended by itself: nothing runs on without the lock.
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
  return code ?? 128 + constants.signals[name]; // as a shell says it
}

// kill sends a signal to a process group, 0 to none, and returns whether anything of it is left.
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
