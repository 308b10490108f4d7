// Above each table of 15 rows or more, a field: the rows that have all words typed there stay.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table")) {
    const rows = [...table.querySelectorAll("tbody tr")];
    if (rows.length < 15) continue;
    const field = document.createElement("input");
    field.type = "search";
    field.className = "form-control filter";
    field.placeholder = field.ariaLabel = `Filter ${rows.length} rows`;
    (table.closest(".pst-scrollable-table-container") ?? table).before(field);
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/);
      for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    });
  }
});
