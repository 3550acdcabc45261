// The texts that are visible and whose contrast is below 4.5:1 (WCAG 2.2, 1.4.3), and how many texts there are.
() => {
  // A canvas resolves whatever CSS calls a colour, also over each other.
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const pixel = (colours) => {
    context.clearRect(0, 0, 1, 1);
    for (const colour of colours) {
      context.fillStyle = colour;
      context.fillRect(0, 0, 1, 1);
    }
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const light = (colours) => {
    const [red, green, blue] = pixel(colours).map((part) => linear(part / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element) => {
    const found = [];
    for (let at = element; at; at = at.parentElement) found.unshift(getComputedStyle(at).backgroundColor);
    return ["white", ...found];
  };
  const isExempt = (element) =>
    !element.checkVisibility({ visibilityProperty: true }) || element.closest(":disabled, option, .offscreen, noscript");
  const low = [];
  let count = 0;
  for (const element of document.querySelectorAll("body *")) {
    const texts = [...element.childNodes].filter((node) => node.nodeType === 3 && node.data.trim());
    if (!texts.length || isExempt(element)) continue;
    const style = getComputedStyle(element);
    const back = behind(element);
    const text = light([...back, element instanceof SVGElement ? style.fill : style.color]);
    const under = light(back);
    const ratio = (Math.max(text, under) + 0.05) / (Math.min(text, under) + 0.05);
    count += 1;
    if (ratio < 4.5) low.push(`${ratio.toFixed(2)} ${element.tagName} ${element.className} ${texts[0].data.slice(0, 30)}`);
  }
  return [count, low];
}
