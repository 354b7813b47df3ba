"""The page around a report: typography, colours for light and dark, and nothing from elsewhere."""

from __future__ import annotations

from html import escape

CSS = """
:root{--paper:#fbfaf8;--ink:#1f2328;--soft:#5b636d;--rule:#e4e1da;--card:#fff;--serious:#b42318;--warning:#9a6700;--info:#0b6e8a;--ok:#1a7f4b;
--line:#33526e;--band:#33526e2b;--mark:#d9770626}
@media(prefers-color-scheme:dark){:root{--paper:#14171a;--ink:#e8e6e1;--soft:#9aa4ae;--rule:#2c3238;--card:#1b1f23;--serious:#ff8a7a;--warning:#e3b341;
--info:#6cc5de;--ok:#6fd39b;--line:#9cc3e6;--band:#9cc3e62e;--mark:#e3b3412e}}
*{box-sizing:border-box}html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.6 "Iowan Old Style","Palatino Linotype",Palatino,"Noto Serif","Noto Serif CJK SC","Songti SC",Georgia,serif}
main{max-width:1080px;margin:0 auto;padding:clamp(18px,4vw,56px) clamp(16px,4vw,40px)}
h1,h2,h3,.meta,.tag,figcaption,dt,text,footer,.kv{font-family:ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Noto Sans CJK SC","PingFang SC",sans-serif}
h1{font-size:clamp(24px,5vw,36px);line-height:1.2;margin:.1em 0 .3em;letter-spacing:-.015em;text-wrap:balance}
h2{font-size:15px;text-transform:uppercase;letter-spacing:.08em;color:var(--soft);margin:2.6em 0 1em;font-weight:600}
h3{font-size:20px;line-height:1.3;margin:0 0 .4em;letter-spacing:-.01em}
.meta{color:var(--soft);font-size:14px;overflow-wrap:anywhere;margin:0}
.serious{--c:var(--serious)}.warning{--c:var(--warning)}.info,.cannot_tell{--c:var(--info)}.no_objection{--c:var(--ok)}
h1.serious,h1.warning,h1.no_objection,h1.cannot_tell{color:var(--c)}
article{background:var(--card);border:1px solid var(--rule);border-left:4px solid var(--c);border-radius:6px;padding:clamp(16px,3vw,28px);margin:0 0 20px;display:grid;gap:20px 36px;grid-template-columns:minmax(0,1fr)}
@media(min-width:860px){article.wide{grid-template-columns:minmax(0,1.05fr) minmax(0,1fr)}}
article p{margin:.2em 0 .9em;overflow-wrap:anywhere}
.tag{display:inline-block;font-size:12px;font-weight:600;color:var(--c);margin:0 10px 10px 0}.tag.id{color:var(--soft);font-weight:400;font-family:ui-monospace,Menlo,Consolas,monospace}
dl{margin:0;font-size:15px}dt{font-size:12px;color:var(--soft);margin-top:.8em}dd{margin:.1em 0 0;overflow-wrap:anywhere}dd.do{font-weight:600}
code{font:.88em ui-monospace,Menlo,Consolas,monospace;background:color-mix(in srgb,var(--soft) 14%,transparent);padding:.1em .3em;border-radius:3px;font-weight:400}
figure{margin:0 0 18px}figcaption{font-size:13px;color:var(--soft);margin-bottom:4px;overflow-wrap:anywhere}
svg{display:block;width:100%;height:auto;overflow:visible}.line{fill:none;stroke:var(--line);stroke-width:1.8;stroke-linejoin:round}
.band{fill:var(--band)}.mark{fill:var(--mark)}.dot{fill:var(--c,var(--warning));stroke:var(--card);stroke-width:1.5}.grid{stroke:var(--rule)}text{font-size:12px;fill:var(--soft)}
.curves{display:grid;gap:8px 32px;grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr))}
.notes{padding:0;margin:0;list-style:none}.notes li{border-top:1px solid var(--rule);padding:14px 0}.notes b{font-weight:600}
.seen{color:var(--soft);font-size:15px;overflow-wrap:anywhere}footer{color:var(--soft);font-size:13px;margin-top:3em;border-top:1px solid var(--rule);padding-top:1em}
.kv{border-collapse:collapse;font-size:15px}.kv td{padding:4px 24px 4px 0;border-top:1px solid var(--rule)}.kv td:last-child{font-variant-numeric:tabular-nums}
@media(max-width:480px){text{font-size:19px}}@media print{article{break-inside:avoid}}
"""


def document(title: str, body: str, lang: str) -> str:
    """A whole page. No script, no font, no picture from outside."""
    code = {"zh": "zh-CN"}.get(lang, lang)
    return (
        f'<!doctype html>\n<html lang="{code}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><title>{escape(title)}</title><style>{CSS}</style></head>'
        f"<body><main>{body}</main></body></html>\n"
    )


def prose(text: str) -> str:
    """Escaped text with `names` as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))
