// Sends a turn with a failed tool through one of the real exporters: http (JSON) or proto.
const [exporterName, compression, url, key, conversation] = process.argv.slice(2);
const { OTLPTraceExporter } = require(`@opentelemetry/exporter-trace-otlp-${exporterName}`);
const { BasicTracerProvider, BatchSpanProcessor } = require("@opentelemetry/sdk-trace-base");
const { resourceFromAttributes } = require("@opentelemetry/resources");
const { ROOT_CONTEXT, SpanStatusCode, diag, trace } = require("@opentelemetry/api");

const problems = [];
const note = (...said) => problems.push(said.join(" "));
diag.setLogger({ error: note, warn: note, info() {}, debug() {}, verbose() {} });

const exporter = new OTLPTraceExporter({ url, compression, headers: { "x-sonar-api-key": key } });
const provider = new BasicTracerProvider({
  resource: resourceFromAttributes({ "service.name": "bot" }),
  spanProcessors: [new BatchSpanProcessor(exporter)],
});
const tracer = provider.getTracer("a.scope", "1.0");
const named = { "sonar.conversation.id": conversation };

const turn = tracer.startSpan("turn", {
  attributes: {
    ...named,
    text: "näme \u{1f642} \u0000",
    whole: Number.MAX_SAFE_INTEGER,
    negative: -7,
    real: 1.5,
    flag: true,
    texts: ["a", "b"],
    numbers: [1, 2],
    nan: NaN,
  },
});
const inside = trace.setSpan(ROOT_CONTEXT, turn);
const tool = tracer.startSpan(
  "execute_tool lookup",
  { attributes: { ...named, "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup" } },
  inside,
);
tool.recordException(new Error("no such order"));
tool.setStatus({ code: SpanStatusCode.ERROR, message: "no such order" });
tool.end();
tracer.startSpan("half \ud800 character", { attributes: named }, inside).end();
turn.end();

provider
  .forceFlush()
  .then(() => provider.shutdown())
  .then(() => {
    console.log(problems.length ? problems.join("\n") : "exported");
  });
