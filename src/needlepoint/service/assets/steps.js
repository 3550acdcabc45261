// Words for the steps that narrow what a query reads.

const WORDS = {
  by_partition: "partition",
  by_zone: "value range of the file",
  by_key: "key index",
  by_row_group: "value range of the row group",
  by_bloom: "bloom filter",
  by_page: "value range of the page",
  by_index: "other index",
  by_score: "highest scores",
};

/** A step that is not known here is shown by its name. */
export const stepWord = (step) => WORDS[step] ?? step.replace(/^by_/, "").replaceAll("_", " ");
