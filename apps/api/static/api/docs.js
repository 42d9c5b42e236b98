"use strict";
// Everything comes from this host, so the page works under the strict content policy and without a network.
window.addEventListener("load", () => {
  SwaggerUIBundle({
    url: "/api/v1/schema",
    dom_id: "#swagger-ui",
    deepLinking: true,
    docExpansion: "list",
    presets: [SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
    validatorUrl: null,
  });
});
