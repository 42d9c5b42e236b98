import createClient from "openapi-fetch";
import type { paths } from "./api.js";

declare const process: { argv: string[] };
const [base, key] = process.argv.slice(2);
const client = createClient<paths, "application/json" | "application/problem+json">({ baseUrl: base, headers: { Authorization: `Bearer ${key}` } });

const made = await client.POST("/api/v1/jobs", {
  params: { header: { "Idempotency-Key": "from-typescript" } },
  body: { name: "from typescript", kind: "http", target: { url: "https://example.com/hello" } },
});
if (made.error) throw new Error(made.error.detail);
const id: string = made.data.id;
const read = await client.GET("/api/v1/jobs/{job_id}", { params: { path: { job_id: id } } });
const none = await client.GET("/api/v1/jobs/{job_id}", {
  params: { path: { job_id: "00000000-0000-7000-8000-000000000000" } },
});
console.log(JSON.stringify({ name: read.data?.name, timeout_s: read.data?.timeout_s, code: none.error?.code }));
