"""The page behind ``/docs``: lists every call and lets one try it, from what the node serves."""

from typing import Final

__all__ = ["PAGE"]

PAGE: Final = b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Waystation HTTP</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
code,pre,textarea,input{font:13px/1.45 ui-monospace,monospace}
details{border:1px solid #ddd;border-radius:6px;margin:.4rem 0;padding:.4rem .8rem}
summary{cursor:pointer}b.m{display:inline-block;width:4.5rem;color:#0a58ca}
label{display:grid;grid-template-columns:11rem 1fr;gap:.6rem;margin:.25rem 0}
small{color:#666;grid-column:2}textarea{width:100%;min-height:6rem}
pre{background:#f6f6f6;padding:.6rem;overflow:auto;max-height:24rem}
button{padding:.25rem 1rem;margin:.4rem 0}h2{margin-top:2rem;text-transform:capitalize}
</style>
<h1>Waystation HTTP</h1><p id="about"></p><div id="calls">Loading openapi.json ...</div>
<script>
const make=(tag,text,into)=>{const e=document.createElement(tag);if(text)e.textContent=text;
 if(into)into.append(e);return e};
let spec;
const shape=s=>s&&s.$ref?spec.components.schemas[s.$ref.split('/').pop()]:s;
function sample(schema,deep=0){const s=shape(schema)||{};
 if(s.examples)return s.examples[0];if(s.enum)return s.enum[0];
 const one=s.anyOf||s.oneOf;if(one)return sample(one[0],deep);
 if(s.type==='object'){const o={};if(deep<4)for(const n of s.required||[])
  o[n]=sample(s.properties[n],deep+1);return o}
 if(s.type==='array')return deep<4?[sample(s.items,deep+1)]:[];
 if(s.type==='integer'||s.type==='number')return s.minimum??0;
 if(s.type==='boolean')return false;return ''}
function show(path,method,op,into){
 const d=make('details',null,into),s=make('summary',null,d);
 const m=make('b',method.toUpperCase(),s);m.className='m';make('code',path,s);
 s.append(' '+op.summary);
 const inputs=(op.parameters||[]).map(p=>{const l=make('label',null,d);
  make('code',p.name+(p.required?' *':''),l);const i=make('input',null,l);
  if(p.schema.default!=null)i.placeholder=p.schema.default;
  if(p.description)make('small',p.description,l);return [p,i]});
 let body=null;const kinds=op.requestBody&&Object.keys(op.requestBody.content);
 if(kinds){make('p','Body, '+kinds.join(' or '),d);body=make('textarea',null,d);
  body.value=JSON.stringify(sample(op.requestBody.content[kinds[0]].schema),null,2)}
 const go=make('button','Try it',d),curl=make('pre','',d),out=make('pre','',d);
 curl.hidden=out.hidden=true;
 go.onclick=async()=>{let url=path;const q=new URLSearchParams();
  for(const [p,i] of inputs){if(p.in==='path')url=url.replace('{'+p.name+'}',
   encodeURIComponent(i.value));else if(i.value!=='')q.set(p.name,i.value)}
  if([...q].length)url+='?'+q;
  const o={method:method.toUpperCase()};
  if(body){o.body=body.value;o.headers={'content-type':kinds[0]}}
  curl.hidden=out.hidden=false;
  curl.textContent='curl -X '+o.method+" '"+location.origin+url+"'"+
   (body?" -H 'content-type: "+kinds[0]+"' -d '"+body.value.replace(/'/g,"'\\\\''")+"'":'');
  if(op['x-websocket'])return talk(url.replace(/^/,location.origin.replace('http','ws')));
  try{const r=await fetch(url,o);
   if((r.headers.get('content-type')||'').startsWith('text/event-stream'))return follow(r);
   let t=await r.text();
   try{t=JSON.stringify(JSON.parse(t),null,2)}catch{}
   out.textContent=r.status+' '+r.statusText+'\\n\\n'+t}
  catch(e){out.textContent=String(e)}};
 const more=t=>{out.textContent=(out.textContent+t).slice(-20000);out.scrollTop=out.scrollHeight};
 async function follow(r){out.textContent='';const rd=r.body.getReader(),de=new TextDecoder();
  for(;;){const {done,value}=await rd.read();if(done)return more('(ended)');more(de.decode(value))}}
 function talk(url){curl.textContent=url;out.textContent='';const ws=new WebSocket(url);
  const said=make('input',null,d),say=make('button','Say it',d);
  said.value='{"type":"credit","messages":10}';said.style.width='80%';
  say.onclick=()=>ws.send(said.value);ws.onmessage=e=>more(e.data+'\\n');
  ws.onclose=e=>{more('(closed '+e.code+' '+e.reason+')\\n');said.remove();say.remove()}}
 const answers=Object.entries(op.responses).map(([c,r])=>c+' '+r.description).join(', ');
 make('small','Answers: '+answers,d)}
fetch('openapi.json').then(r=>r.json()).then(s=>{spec=s;
 document.getElementById('about').textContent=s.info.description;
 const calls=document.getElementById('calls');calls.textContent='';const parts={};
 for(const [path,ops] of Object.entries(s.paths))for(const [method,op] of Object.entries(ops)){
  const t=op.tags[0];parts[t]??=[make('h2',t,calls),make('div',null,calls)][1];
  show(path,method,op,parts[t])}});
</script>
"""
