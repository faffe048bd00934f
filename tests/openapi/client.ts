// A client whose types are generated from /openapi.json. The compiler checks what it sends and reads.
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

declare const process: { argv: string[] };

function check(ok: unknown, what: string): asserts ok {
  if (!ok) throw new Error(what);
}

const client = createClient<paths>({ baseUrl: process.argv[2] ?? "", headers: { Accept: "application/json, application/problem+json" } });

const made = await client.POST("/v1/claims", { body: { id: "typed", resource: "typed/one", ttl: 60, user_data: { host: "a7" } } });
check(made.response.status === 201 && made.data !== undefined, "it is active");
const token: number | null = made.data.token;
check(token !== null && made.data.status === "active" && made.data.mode === "exclusive", "it has a token");

const waiting = await client.POST("/v1/claims", { body: { id: "waits", resource: "typed/one", ttl: 60, mode: "shared", wait_ttl: 60 } });
check(waiting.response.status === 202 && waiting.data?.position === 1, "another one waits");
check(waiting.response.headers.get("Retry-After") !== null, "and is to ask again");

const path = { id: "typed" };
const etag = made.response.headers.get("ETag") ?? "";
const renewed = await client.PATCH("/v1/claims/{id}", { params: { path, header: { "If-Match": etag } }, body: { ttl: 90 } });
check(renewed.response.status === 200 && (renewed.data?.ttl ?? 0) > 60, "it is renewed");
const stale = await client.PATCH("/v1/claims/{id}", { params: { path, header: { "If-Match": etag } }, body: { ttl: 90 } });
check(stale.response.status === 412 && stale.error !== undefined && "detail" in stale.error, "but not by those who have not seen that");

const list = await client.GET("/v1/claims", { params: { query: { resource: "typed/one", status: ["active"], order: "newest" } } });
check(list.data?.length === 1 && list.data[0]?.id === "typed", "it is listed");
const queue = await client.GET("/v1/resources/{resource}", { params: { path: { resource: "typed/one" } } });
check(queue.data?.holders.length === 1 && queue.data.waiters[0]?.id === "waits", "the queue has both");

// @ts-expect-error the resource is missing
const wrong = await client.POST("/v1/claims", { body: { ttl: 60 } });
const errors = wrong.error?.errors;
check(wrong.response.status === 400 && typeof errors === "object" && errors["resource"] === "is required", "it is required");
// @ts-expect-error there is no such right
const right = await client.GET("/v1/permissions/{resource}", { params: { path: { resource: "typed/one" }, query: { right: "write" } } });
check(right.response.status === 400, "no such right");

const ended = await client.DELETE("/v1/claims/{id}", { params: { path, query: { reason: "done" } } });
check(ended.response.status === 204, "it has ended");
console.log("ok");
